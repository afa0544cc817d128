"""Which GPUs a process sees: CUDA_VISIBLE_DEVICES read as the driver reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.facts import Gpu

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"

Trouble = Literal["unknown", "repeated"]


class Visible(Struct, frozen=True, kw_only=True):
    """`seen` are the names that count; the first that is wrong ends the list, and `ended_by` says which and why."""

    named: tuple[str, ...]
    seen: tuple[str, ...]
    ended_by: tuple[str, Trouble] | None = None


def visible(text: str, gpus: Sequence[Gpu]) -> Visible:
    """CUDA's documentation of the variable: names are indices or beginnings of UUIDs; an invalid one hides all behind it."""
    named = tuple(name for one in text.split(",") if (name := one.strip()))
    seen: list[str] = []
    meant: set[str] = set()
    for name in named:
        one = _meant(name, gpus)
        if one is None:
            return Visible(named=named, seen=tuple(seen), ended_by=(name, "unknown"))
        if one in meant:
            return Visible(named=named, seen=tuple(seen), ended_by=(name, "repeated"))
        seen.append(name)
        meant.add(one)
    return Visible(named=named, seen=tuple(seen))


def _meant(name: str, gpus: Sequence[Gpu]) -> str | None:
    """The GPU that a name means; a part of a GPU (MIG) is taken at its word."""
    if name.isdigit():
        return gpus[int(name)].uuid if int(name) < len(gpus) else None
    if name.startswith("MIG-"):
        return name
    hits = [gpu.uuid for gpu in gpus if gpu.uuid.lower().startswith(name.lower())]
    return hits[0] if len(hits) == 1 and name.upper().startswith("GPU-") else None
