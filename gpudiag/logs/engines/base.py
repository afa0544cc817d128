"""The forms of the engine tables."""

from __future__ import annotations

import re

from msgspec import Struct

from gpudiag.model.log import EventKind


class Sign(Struct, frozen=True, kw_only=True):
    """A line that means something.

    `anchor` is a literal that stands in every such line (the prefilter looks for it), `pattern` reads the fields as
    named groups.
    """

    kind: EventKind
    anchor: str
    pattern: re.Pattern[str]


class Step(Struct, frozen=True, kw_only=True):
    """A milestone: `order` places it in the life of the server; from SERVING on the server answers requests."""

    anchor: str
    order: int
    name: str


class Victim(Struct, frozen=True, kw_only=True):
    """An exception that only answers somebody else's failure.

    `exception` matches the class, `message` its text and `source` the text of the innermost frame's line; `reason`
    says what it really means.
    """

    reason: str
    exception: re.Pattern[str] | None = None
    message: re.Pattern[str] | None = None
    source: re.Pattern[str] | None = None


SERVING = 100
"""Order of the first milestone at which the server answers."""
WORKING = 120
"""Order of the milestones that show a request being worked on."""


def sign(kind: EventKind, anchor: str, pattern: str | None = None) -> Sign:
    return Sign(kind=kind, anchor=anchor, pattern=re.compile(pattern or re.escape(anchor)))


def step(anchor: str, order: int, name: str) -> Step:
    return Step(anchor=anchor, order=order, name=name)


def victim(reason: str, *, exception: str | None = None, message: str | None = None, source: str | None = None) -> Victim:
    return Victim(
        reason=reason,
        exception=re.compile(exception) if exception else None,
        message=re.compile(message) if message else None,
        source=re.compile(source) if source else None,
    )
