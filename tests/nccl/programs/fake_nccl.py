"""A FAKE of what NCCL leaves in memory: a mapped file that starts like a libnccl, and communicators where the table says.

    fake_nccl.py DIRECTORY DESCRIPTION

DESCRIPTION is JSON: build_id, symbols, offsets, and slots, a list of null or objects with hash, rank, size, cuda, nvml,
launched and optionally broken ('magic', 'freed'). Nothing in it is NCCL's code; it holds the reader to its layout, not the
layout to NCCL. It prints its pid, then a line for each command on stdin: 'launch SLOT KIND' counts one collective more.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import struct
import sys
from pathlib import Path
from typing import Any

MAGIC = 0x0280028002800280


def library(directory: Path, build_id: str, size: int) -> mmap.mmap:
    """A sparse file with an ELF header, one program header and one note, mapped privately for writing."""
    path = directory / "libnccl.so.2"
    note = struct.pack("<III", 4, len(build_id) // 2, 3) + b"GNU\0" + bytes.fromhex(build_id)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    program = struct.pack("<IIQQQQQQ", 4, 4, 120, 120, 120, len(note), len(note), 4)
    path.write_bytes(header + program + note)
    with path.open("r+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def address(area: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


class Communicator:
    """One fake struct ncclComm."""

    def __init__(self, offsets: dict[str, int], facts: dict[str, Any]) -> None:
        self.offsets = offsets
        self.area = mmap.mmap(-1, max(offsets.values()) + 4096)
        self.flag = ctypes.c_uint32(facts.get("aborted", 0))
        self.put("startMagic", "<Q", MAGIC)
        self.put("endMagic", "<Q", 1 if facts.get("broken") == "magic" else MAGIC)
        self.put("commHash", "<Q", int(facts["hash"], 16))
        for field, key in (("rank", "rank"), ("nRanks", "size"), ("cudaDev", "cuda"), ("nvmlDev", "nvml")):
            self.put(field, "<i", facts[key])
        self.put("asyncResult", "<i", facts.get("async", 0))
        self.put("abortFlag", "<Q", ctypes.addressof(self.flag))
        self.put("initState", "<i", facts.get("init", 0))
        self.launched = list(facts["launched"])
        self.put("seqNumber", "<5Q", *self.launched)

    def put(self, field: str, form: str, *values: int) -> None:
        struct.pack_into(form, self.area, self.offsets[field], *values)

    def launch(self, kind: int) -> None:
        self.launched[kind] += 1
        self.put("seqNumber", "<5Q", *self.launched)


def main() -> None:
    what = json.loads(sys.argv[2])
    symbols, offsets = what["symbols"], what["offsets"]
    image = library(Path(sys.argv[1]), what["build_id"], max(symbols.values()) + 4096)
    made = [Communicator(offsets, slot) if slot else None for slot in what["slots"]]
    pointers = [
        0 if c is None else 64 if slot.get("broken") == "freed" else address(c.area)
        for c, slot in zip(made, what["slots"], strict=True)
    ]
    table = (ctypes.c_uint64 * max(len(pointers), 1))(*pointers)
    struct.pack_into("<i", image, symbols["nNcclComms"], what.get("count", len(pointers)))
    struct.pack_into("<Q", image, symbols["ncclComms"], ctypes.addressof(table))
    sys.stdout.write(json.dumps("ready") + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        _, slot, kind = line.split()
        communicator = made[int(slot)]
        assert communicator is not None
        communicator.launch(int(kind))
        sys.stdout.write("launched\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
