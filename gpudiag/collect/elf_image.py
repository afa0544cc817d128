"""ELF files of other processes: the build-id as it is mapped, symbol addresses from the file. 64-bit little-endian only.

Both come from the target, so every size and offset is checked before it is used.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpudiag.collect.memory import TargetMemory

_PT_NOTE: Final = 4
_NT_GNU_BUILD_ID: Final = 3
_SHT_SYMTAB: Final = 2
_MOST_HEADERS: Final = 4096
_MOST_NOTES_BYTES: Final = 64 << 10
_MOST_SYMBOL_BYTES: Final = 64 << 20
_SYMBOL: Final = struct.Struct("<IBBHQQ")


class _Table(NamedTuple):
    """Offset, size and entry size of a header table or a section, in bytes."""

    offset: int
    size: int
    link: int = 0


def build_id(memory: TargetMemory, base: int) -> str | None:
    """The GNU build-id (hexadecimal) of the ELF file mapped at `base`, read where it is mapped: no file is opened.

    None for a file without one. Raises ValueError for what is no ELF file, OSError as TargetMemory does.
    """
    header = memory.read(base, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"no 64-bit little-endian ELF file at {base:#x}")
    (offset,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    if size != 56 or count > _MOST_HEADERS:
        raise ValueError("an ELF header that makes no sense")
    for entry in struct.iter_unpack("<IIQQQQQQ", memory.read(base + offset, size * count)):
        kind, _, _, address, _, length, _, _ = entry
        if kind == _PT_NOTE and length <= _MOST_NOTES_BYTES:
            found = _gnu_build_id(memory.read(base + address, length))
            if found is not None:
                return found
    return None


def _gnu_build_id(notes: bytes) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name_size, value_size, kind = struct.unpack_from("<III", notes, at)
        value = at + 12 + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[value : value + value_size].hex() or None
        at = value + (value_size + 3 & ~3)
    return None


def symbols(fd: int, names: Iterable[str]) -> dict[str, int]:
    """Addresses (relative to the load address) of those `names` that the symbol table of an open library defines.

    Raises ValueError for a stripped library or a damaged file, OSError for one that cannot be read.
    """
    sections = _sections(fd)
    table = next((s for kind, s in sections if kind == _SHT_SYMTAB), None)
    if table is None or not 0 < table.link < len(sections):
        raise ValueError("the library is stripped of its symbol table")
    strings = _read(fd, sections[table.link][1])
    wanted = dict(_name_offsets(strings, names))
    found: dict[str, int] = {}
    entries = _read(fd, table)
    for offset, _, _, section, value, _ in _SYMBOL.iter_unpack(entries[: len(entries) // _SYMBOL.size * _SYMBOL.size]):
        name = wanted.get(offset)
        if name is not None and section and value:
            found[name] = value
    return found


def _sections(fd: int) -> list[tuple[int, _Table]]:
    header = os.pread(fd, 64, 0)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", header, 40)
    size, count = struct.unpack_from("<HH", header, 58)
    if size != 64 or count > _MOST_HEADERS:
        raise ValueError("an ELF header that makes no sense")
    raw = _read(fd, _Table(offset, size * count))
    return [(kind, _Table(at, length, link)) for _, kind, _, _, at, length, link, *_ in struct.iter_unpack("<IIQQQQIIQQ", raw)]


def _read(fd: int, table: _Table) -> bytes:
    if not 0 <= table.size <= _MOST_SYMBOL_BYTES or table.offset < 0:
        raise ValueError("a section that is too large")
    try:
        data = os.pread(fd, table.size, table.offset)
    except OverflowError:
        raise OSError(errno.EINVAL, "a section beyond the end of the file") from None
    if len(data) < table.size:
        raise ValueError("a section beyond the end of the file")
    return data


def _name_offsets(strings: bytes, names: Iterable[str]) -> Iterable[tuple[int, str]]:
    """Every place in a string table at which one of the names starts: several symbols may have the same name."""
    for name in names:
        needle = b"\0" + name.encode() + b"\0"
        at = strings.find(needle)
        while at >= 0:
            yield at + 1, name
            at = strings.find(needle, at + 1)
