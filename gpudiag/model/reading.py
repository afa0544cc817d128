"""The result of one attempt to look at something: a value, a reason why not, or a failure."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Ok(Struct, Generic[T], frozen=True, kw_only=True, tag="ok", tag_field="reading"):
    """A value that was read. `at` is Unix time in seconds, `took_s` the wall time of the read."""

    value: T
    at: float
    took_s: float = 0.0


class Unavailable(Struct, frozen=True, kw_only=True, tag="unavailable", tag_field="reading"):
    """The source exists but could not be used. `reason` says why, `help` what to type next."""

    reason: str
    help: str


class Failed(Struct, frozen=True, kw_only=True, tag="failed", tag_field="reading"):
    """The source broke: a bug, a deadline, a value nobody expected."""

    error: str


Reading: TypeAlias = Ok[T] | Unavailable | Failed

NOT_ASKED = Unavailable(reason="not asked for", help="")
"""A source that this look left out on purpose; never counts as missing evidence."""


def value_or(reading: Ok[T] | Unavailable | Failed, default: T) -> T:
    """The value if there is one, else `default`. Only for callers to whom 'unknown' and `default` are the same."""
    return reading.value if isinstance(reading, Ok) else default
