"""Which GPU runs what: NVIDIA's rules of binary and PTX compatibility.

CUDA C++ Programming Guide, 'Compute Capabilities' and 'Application Compatibility'; nvcc documentation, 'GPU Feature List'
(suffixes a and f). Compared with what a GPU of compute capability 9.0 really loaded: equal for 12 of 12 targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.library import Library, Target

Way = Literal["native", "jit", "none"]

_TEGRA: Final = frozenset({53, 62, 72, 87})
"""Integrated GPUs: their machine code runs on no other architecture."""
_FAMILIES: Final = {100: 100, 103: 100, 107: 100, 101: 110, 110: 110, 120: 120, 121: 120}
"""Family of each architecture that has one."""
_CAPABILITY: Final = re.compile(r"(\d{1,2})\.(\d)|(?:sm_?)?(\d{2,3})[af]?")


class Coverage(Struct, frozen=True, kw_only=True):
    """How much of a library a GPU can run: fatbins with machine code, with PTX only, and with neither."""

    native: int
    jit: int
    none: int
    targets: tuple[Target, ...]
    """The targets that run, machine code before PTX."""

    @property
    def way(self) -> Way:
        return "native" if self.native else "jit" if self.jit else "none"


def parse_capability(text: str) -> int | None:
    """'12.0', '120', 'sm_120' as 120; None for anything else."""
    found = _CAPABILITY.fullmatch(text.strip().lower())
    if found is None:
        return None
    return int(found[3]) if found[3] else int(found[1]) * 10 + int(found[2])


def capability_name(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def runs_on(target: Target, capability: int) -> Way:
    """How a GPU of this capability (120 is 12.0) runs code for `target`: as it is, compiled by its driver first, or not."""
    if target.kind == "ltoir":
        return "none"
    way: Way = "native" if target.kind == "cubin" else "jit"
    if target.suffix == "a":
        fits = target.arch == capability
    elif target.suffix == "f":
        family = _FAMILIES.get(target.arch)
        fits = family is not None and family == _FAMILIES.get(capability) and capability >= target.arch
    elif target.kind == "cubin":
        same = target.arch // 10 == capability // 10 and capability >= target.arch
        fits = same and (target.arch == capability or target.arch not in _TEGRA)
    else:
        fits = capability >= target.arch
    return way if fits else "none"


def coverage(library: Library, capability: int) -> Coverage:
    """Fatbin by fatbin: one source file without an image is common and meant, a library without any is not."""
    counts: dict[Way, int] = {"native": 0, "jit": 0, "none": 0}
    for unit in library.units:
        counts[best(unit.targets, capability)] += unit.count
    fitting = {t: runs_on(t, capability) for t in library.targets}
    ordered = [t for way in ("native", "jit") for t, how in fitting.items() if how == way]
    return Coverage(native=counts["native"], jit=counts["jit"], none=counts["none"], targets=tuple(ordered))


def best(targets: Iterable[Target], capability: int) -> Way:
    ways = {runs_on(t, capability) for t in targets}
    return "native" if "native" in ways else "jit" if "jit" in ways else "none"
