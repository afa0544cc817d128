"""Which GPUs a process sees: CUDA_VISIBLE_DEVICES read as the driver reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.facts import Gpu

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"

_DIGITS: Final = 6
Trouble = Literal["unknown", "repeated"]


class Visible(Struct, frozen=True, kw_only=True):
    """`seen` are the names that count; `wrong` is the first that does not: unknown, it ends the list, repeated, it empties it."""

    named: tuple[str, ...]
    seen: tuple[str, ...]
    wrong: tuple[str, Trouble] | None = None


def visible(text: str, gpus: Sequence[Gpu]) -> Visible:
    """CUDA's documentation of the variable: names are indices or beginnings of UUIDs; an invalid one hides all behind it.

    One that is named twice leaves no GPU at all (torch 2.11, cuda/__init__.py, `_parse_visible_devices`); nothing between two
    commas is an unknown one.
    """
    listed = text.rstrip(", \t")
    named = tuple(one.strip() for one in listed.split(",")) if listed else ()
    seen: list[str] = []
    meant: set[str] = set()
    for name in named:
        one = _meant(name, gpus)
        if one is None:
            return Visible(named=named, seen=tuple(seen), wrong=(name, "unknown"))
        if one in meant:
            return Visible(named=named, seen=(), wrong=(name, "repeated"))
        seen.append(name)
        meant.add(one)
    return Visible(named=named, seen=tuple(seen))


def _meant(name: str, gpus: Sequence[Gpu]) -> str | None:
    """The GPU that a name means; a part of a GPU (MIG) is taken at its word."""
    if name.isascii() and name.isdigit():
        index = int(name[-_DIGITS:])
        return gpus[index].uuid if len(name) <= _DIGITS and index < len(gpus) else None
    if name.startswith("MIG-"):
        return name
    hits = [gpu.uuid for gpu in gpus if gpu.uuid.lower().startswith(name.lower())]
    return hits[0] if len(hits) == 1 and name.upper().startswith("GPU-") else None
