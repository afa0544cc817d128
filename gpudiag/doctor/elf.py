"""The sections of an ELF file, as far as GPU code needs them. 64-bit little-endian only."""

from __future__ import annotations

import mmap
import struct
from typing import Final

from msgspec import Struct

MAGIC: Final = b"\x7fELF"
EM_CUDA: Final = 190
ET_REL: Final = 1
_NOBITS: Final = 8
_HEADER: Final = 64
_SECTION: Final = 64
_EXTENDED_INDEX: Final = 0xFFFF
_MAX_SECTIONS: Final = 1 << 20
_MAX_NAME: Final = 256

Data = bytes | mmap.mmap


class Elf(Struct, frozen=True, kw_only=True):
    """Header fields, and where each section lies: (name, offset, size) in bytes. `cut` if the file ends before its table."""

    machine: int
    type: int
    flags: int
    abi_version: int
    sections: tuple[tuple[str, int, int], ...]
    cut: bool = False

    def ranges(self, name: str) -> list[tuple[int, int]]:
        """Offset and size of each section of this name."""
        return [(offset, size) for found, offset, size in self.sections if found == name]


def read(data: Data) -> Elf | None:
    """The header and section table; None for anything that is no 64-bit little-endian ELF file."""
    if len(data) < _HEADER or data[:4] != MAGIC or data[4] != 2 or data[5] != 1:
        return None
    kind, machine = struct.unpack_from("<HH", data, 16)
    (table,) = struct.unpack_from("<Q", data, 40)
    (flags,) = struct.unpack_from("<I", data, 48)
    entry, count, names = struct.unpack_from("<HHH", data, 58)
    sections = _sections(data, table, entry, count, names) if table else ()
    return Elf(
        machine=machine, type=kind, flags=flags, abi_version=data[8], sections=sections or (), cut=table != 0 and sections is None
    )


def _sections(data: Data, table: int, entry: int, count: int, names: int) -> tuple[tuple[str, int, int], ...] | None:
    if entry < _SECTION or table + entry > len(data):
        return None
    if count == 0:
        # Too many for 16 bits: the number stands in the size of the first entry (System V ABI, chapter 4).
        (count,) = struct.unpack_from("<Q", data, table + 32)
    if names == _EXTENDED_INDEX:
        (names,) = struct.unpack_from("<I", data, table + 40)
    if count > _MAX_SECTIONS or table + count * entry > len(data) or names >= count:
        return None
    (strings,) = struct.unpack_from("<Q", data, table + names * entry + 24)
    found = []
    for index in range(count):
        place = table + index * entry
        name, kind = struct.unpack_from("<II", data, place)
        offset, size = struct.unpack_from("<QQ", data, place + 24)
        if kind != _NOBITS:
            found.append((_string(data, strings + name), offset, size))
    return tuple(found)


def _string(data: Data, start: int) -> str:
    raw = bytes(data[start : start + _MAX_NAME])
    return raw.partition(b"\0")[0].decode("latin-1")
