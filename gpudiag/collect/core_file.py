"""Whether a core dump is on disk in full: dumps are written in place, by a process that may end before it is done."""

from __future__ import annotations

import os
import struct
from typing import Final

_MAGIC: Final = b"\x7fELF\x02\x01"
_HEADER: Final = 64
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_NOBITS: Final = 8
_MOST_SECTIONS: Final = 65_536


def is_complete(file: int) -> bool:
    """Whether a 64-bit ELF file has its table of sections, and every section ends inside the file.

    True also for what is not empty and no such file: a packed dump does not tell. Raises OSError.
    """
    size = os.fstat(file).st_size
    head = os.pread(file, _HEADER, 0)
    if len(head) < _HEADER:
        return False
    if not head.startswith(_MAGIC):
        return not head.startswith(bytes(16))
    (table,) = struct.unpack_from("<Q", head, 0x28)
    entry, count = struct.unpack_from("<HH", head, 0x3A)
    if not table or entry != _SECTION.size or table + entry > size:
        return False
    sections = os.pread(file, entry * max(1, count), table)
    # 65,280 and more are counted in the first section instead (ELF, e_shnum 0).
    if not count:
        count = min(_SECTION.unpack_from(sections)[5], _MOST_SECTIONS)
        sections = os.pread(file, entry * count, table)
    if len(sections) < entry * count:
        return False
    return all(kind == _NOBITS or offset + length <= size for _, kind, _, _, offset, length, *_ in _SECTION.iter_unpack(sections))
