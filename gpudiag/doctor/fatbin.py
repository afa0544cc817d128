"""Which architectures a compiled file holds code for, read from its headers: no GPU, no toolkit, nothing unpacked.

The layout is not documented by NVIDIA. It was checked byte by byte on files of nvcc 13.0 for sm_75 to sm_121a with every
compression mode, and against cuobjdump on the libraries of sglang-kernel, vLLM and NCCL:

- A section .nv_fatbin holds fatbins back to back, each aligned to 8 bytes. __nv_relfatbin holds the inputs of device linking:
  in a linked library they are left over and never registered, in an object file they are all there is.
- Where .nv_fatbin holds only what device linking left, a library may load its code by itself from large data sections (.ldata,
  .lrodata), as cuFFT 12 does: 23,983 fatbins in 274 MB.
- Fatbin header, 16 bytes: u32 magic 0xBA55ED50, u16 version, u16 header size, u64 size of all entries.
- Entry header, 64 bytes or more: u16 kind, u16, u32 header size, u64 payload size, u32 compressed size, u32, u16 minor,
  u16 major, u32 architecture, u32, u32, u64 flags (+40), u64, u64 unpacked size (+56). It is never compressed.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from gpudiag.doctor import elf
from gpudiag.doctor.elf import Data
from gpudiag.model.library import ImageKind, Images, Library, Suffix, Target, Unit

MAGIC: Final = 0xBA55ED50
_MAGIC_BYTES: Final = struct.pack("<I", MAGIC)
_HEADER: Final = 16
_ENTRY: Final = 64
_MAX_ENTRY_HEADER: Final = 1 << 16
_KINDS: Final[dict[int, ImageKind]] = {1: "ptx", 2: "cubin", 8: "ltoir"}
_ARCH_SPECIFIC: Final = 0x100000
_FAMILY: Final = 0x200000
_LARGE_DATA: Final = (".lrodata", ".ldata")
_STUB_BYTES: Final = 2048
"""An empty cubin takes about 1.5 KB; the smallest kernel seen takes 3 KB."""


class Entry(Struct, frozen=True):
    """One image: where its fatbin begins, what it is for, its bytes as stored and unpacked. `target` None is an unknown kind."""

    fatbin: int
    target: Target | None
    stored_bytes: int
    unpacked_bytes: int


def scan(path: Path | str) -> Library | None:
    """The GPU code in a file; None if it is no ELF file, fatbin or cubin, or has none. Raises OSError.

    The file is mapped and only its headers are touched: a library of 1 GB takes some milliseconds.
    """
    size = os.path.getsize(path)
    if size < _HEADER:
        return None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if hasattr(mmap, "MADV_RANDOM"):
            data.madvise(mmap.MADV_RANDOM)
        return scan_data(data, str(path))


def scan_data(data: Data, path: str) -> Library | None:
    """The GPU code in these bytes; None if they are nothing that can hold any, or hold none."""
    image = elf.read(data)
    if image is None and data[:4] != _MAGIC_BYTES:
        return None
    if image is not None and image.machine == elf.EM_CUDA:
        return _cubin(data, path, image)
    notes: list[str] = []
    found = _fatbins(data, _ranges(data, image, notes), notes)
    if not found:
        return None
    linked = image is not None and image.type != elf.ET_REL
    stubs = [group for group in found if linked and _is_stub(group)]
    code = [group for group in found if not (linked and _is_stub(group))]
    if image is not None and not code:
        code = _fatbins(data, [one for name in _LARGE_DATA for one in image.ranges(name)], notes)
        notes += ["the library loads its code by itself: it lies in data sections"] if code else []
    units = Counter(tuple(sorted({e.target for e in group if e.target is not None})) for group in code)
    return Library(
        path=path,
        size_bytes=len(data),
        images=_images(code),
        units=tuple(Unit(targets, count) for targets, count in sorted(units.items())),
        stubs=len(stubs),
        stub_images=_images(stubs),
        notes=tuple(dict.fromkeys(notes)),
    )


def _fatbins(data: Data, ranges: list[tuple[int, int]], notes: list[str]) -> list[list[Entry]]:
    """The images of each fatbin in these ranges."""
    by_fatbin: dict[int, list[Entry]] = defaultdict(list)
    for offset, size in ranges:
        for entry in entries(data, offset, min(offset + size, len(data)), notes):
            by_fatbin[entry.fatbin].append(entry)
    return list(by_fatbin.values())


def _ranges(data: Data, image: elf.Elf | None, notes: list[str]) -> list[tuple[int, int]]:
    if image is None:
        return [(0, len(data))]
    if not image.sections:
        notes.append(
            "the file is cut off: its section table is missing" if image.cut else "no section table: searched as a whole"
        )
        return [(0, len(data))]
    linked = image.ranges(".nv_fatbin")
    return linked or image.ranges("__nv_relfatbin")


def entries(data: Data, start: int, end: int, notes: list[str]) -> Iterator[Entry]:
    """Every image of the fatbins between two offsets. What does not parse is skipped and noted."""
    place = start
    while place + _HEADER <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, place)
        if magic != MAGIC or header < _HEADER:
            place = data.find(_MAGIC_BYTES, place + 1, end)
            if place < 0:
                return
            continue
        stop = place + header + size
        if stop > end:
            notes.append("the file is cut off inside a fatbin")
        yield from _images_of(data, place, place + header, min(stop, end), notes)
        place = (stop + 7) & ~7


def _images_of(data: Data, fatbin: int, place: int, stop: int, notes: list[str]) -> Iterator[Entry]:
    while place + _ENTRY <= stop:
        kind, _, header, payload = struct.unpack_from("<HHIQ", data, place)
        _, _, _, _, arch = struct.unpack_from("<IIHHI", data, place + 16)
        (flags,) = struct.unpack_from("<Q", data, place + 40)
        (unpacked,) = struct.unpack_from("<Q", data, place + 56)
        if not _ENTRY <= header <= _MAX_ENTRY_HEADER:
            notes.append(f"an entry that does not parse at {place:#x}")
            return
        suffix: Suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY else ""
        if kind in _KINDS:
            yield Entry(fatbin, Target(_KINDS[kind], arch, suffix), payload, unpacked or payload)
        else:
            notes.append(f"an image of unknown kind {kind}")
            yield Entry(fatbin, None, payload, unpacked or payload)
        place += header + payload


def _is_stub(group: list[Entry]) -> bool:
    return all(e.target is not None and e.target.kind == "cubin" and e.unpacked_bytes < _STUB_BYTES for e in group)


def _images(groups: list[list[Entry]]) -> tuple[Images, ...]:
    counts: dict[Target, list[int]] = defaultdict(lambda: [0, 0, 0])
    for entry in (e for group in groups for e in group):
        if entry.target is None:
            continue
        row = counts[entry.target]
        row[0] += 1
        row[1] += entry.stored_bytes
        row[2] += entry.unpacked_bytes
    return tuple(Images(target, *row) for target, row in sorted(counts.items()))


def _cubin(data: Data, path: str, image: elf.Elf) -> Library:
    """A bare cubin names its architecture in the ELF flags, but not the suffix."""
    arch = image.flags >> 8 & 0xFF if image.abi_version >= 8 else image.flags & 0xFF
    target = Target("cubin", arch)
    return Library(
        path=path,
        size_bytes=len(data),
        images=(Images(target, 1, len(data), len(data)),),
        units=(Unit((target,), 1),),
        notes=("a bare cubin does not say whether it is for this architecture alone (a) or its family (f)",),
    )
