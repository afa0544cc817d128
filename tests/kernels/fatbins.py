"""Fatbins made by hand, byte by byte."""

from __future__ import annotations

import struct

MAGIC = 0xBA55ED50
ARCH_SPECIFIC, FAMILY = 0x100000, 0x200000
PTX, CUBIN, LTO = 1, 2, 8


def entry(kind: int, arch: int, flags: int = 0, payload: int = 4096, header: int = 64, unpacked: int | None = None) -> bytes:
    """One image: its header, and a payload of zeros."""
    head = struct.pack("<HHIQ", kind, 0x0101, header, payload)
    head += struct.pack("<IIHHI", 0, 0, 0, 9 if kind == PTX else 0, arch) + struct.pack("<II", 0, 0)
    head += struct.pack("<QQQ", flags | 0x11, 0, payload if unpacked is None else unpacked)
    return head.ljust(header, b"\0") + bytes(payload)


def fatbin(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


def shared_object(sections: dict[str, bytes], *, kind: int = 3) -> bytes:
    """A 64-bit ELF file with these sections, and the table of their names. `kind` 3 is a shared library, 1 an object file."""
    names = b"\0" + b"".join(n.encode() + b"\0" for n in (*sections, ".shstrtab"))
    offsets, body, place = {}, b"", 64
    for name, data in {**sections, ".shstrtab": names}.items():
        pad = -place % 8
        body += bytes(pad) + data
        offsets[name] = (place + pad, len(data))
        place += pad + len(data)
    table = bytes(64)
    at = 1
    for name in (*sections, ".shstrtab"):
        offset, size = offsets[name]
        table += struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, offset, size, 0, 0, 8, 0)
        at += len(name) + 1
    count = len(sections) + 2
    pad = -place % 8
    head = b"\x7fELF" + bytes([2, 1, 1, 0, 0]) + bytes(7)
    head += struct.pack("<HHIQQQIHHHHHH", kind, 62, 1, 0, 0, place + pad, 0, 64, 0, 0, 64, count, count - 1)
    return head + body + bytes(pad) + table
