"""What `kernels list --json` prints."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

KERNELS_SCHEMA: Final = "gpudiag.kernels/1"


class Use(Struct, frozen=True, kw_only=True):
    """How GPUs of one compute capability run a library as a whole, and how many units have machine code, PTX only, neither."""

    way: Literal["native", "jit", "none"]
    native: int
    jit: int
    none: int


class LibraryRow(Struct, frozen=True, kw_only=True):
    """One compiled library. A unit is a fatbin: one compiled source file."""

    path: str
    size_bytes: int
    role: str | None
    """What an engine uses it for, if that is known."""
    units: int
    stub_units: int
    """Units that hold nothing but what device linking leaves."""
    targets: dict[str, int]
    """Images by target: sm_90a is machine code, compute_80 PTX, lto_75 code for link time."""
    on: dict[str, Use]
    """By compute capability, '12.0'; empty for a library without code."""
    notes: tuple[str, ...]


class KernelTable(Struct, frozen=True, kw_only=True):
    """Every library with GPU code in the places that were named."""

    schema: str = KERNELS_SCHEMA
    libraries: tuple[LibraryRow, ...] = ()
