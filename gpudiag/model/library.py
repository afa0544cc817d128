"""What a compiled library holds for GPUs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ImageKind = Literal["cubin", "ptx", "ltoir"]
Suffix = Literal["", "a", "f"]

_PREFIX: dict[ImageKind, str] = {"cubin": "sm_", "ptx": "compute_", "ltoir": "lto_"}


class Target(Struct, frozen=True, order=True):
    """One architecture that code was compiled for: `arch` 120 with suffix `a` as machine code is sm_120a.

    Suffix `a` is code for exactly this architecture, `f` for its family.
    """

    kind: ImageKind
    arch: int
    suffix: Suffix = ""

    @property
    def name(self) -> str:
        """`sm_120a`, `compute_80` (PTX) or `lto_90`, as nvcc and cuobjdump write it."""
        return f"{_PREFIX[self.kind]}{self.arch}{self.suffix}"


class Unit(Struct, frozen=True):
    """How many fatbins of a library hold exactly these targets. A fatbin is one compiled source file."""

    targets: tuple[Target, ...]
    count: int


class Images(Struct, frozen=True):
    """How many images of one target a library holds, and their bytes as stored and once unpacked."""

    target: Target
    count: int
    stored_bytes: int
    unpacked_bytes: int


class Library(Struct, frozen=True, kw_only=True):
    """The GPU code in one file, read from its headers alone.

    `stubs` are fatbins that hold nothing but empty cubins: nvcc's device-link step adds one with an empty cubin for every
    architecture, which would make each of them look supported. They are counted in neither `images` nor `units`;
    `stub_images` has what they hold, because cuobjdump lists them.
    """

    path: str
    size_bytes: int
    images: tuple[Images, ...] = ()
    units: tuple[Unit, ...] = ()
    stubs: int = 0
    stub_images: tuple[Images, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fatbins(self) -> int:
        """Fatbins with code."""
        return sum(unit.count for unit in self.units)

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(image.target for image in self.images)
