"""A fake server of two ranks that were armed for CUDA core dumps, without CUDA: what the driver's thread does, on real pipes.

armed.py DIRECTORY starts the ranks; with RANK in its environment it is one of them. Like CUDA's driver (580) it makes the
pipe that CUDA_COREDUMP_PIPE names, and when something is written there it writes the file that CUDA_COREDUMP_FILE names,
in two steps. A rank for which DIRECTORY/ends_RANK exists is then aborted. DIRECTORY/silent_RANK: it writes nothing;
cut_RANK: only the first step; late_RANK holds the second step back until that file is gone. Ends when its stdin does.
"""

from __future__ import annotations

import os
import resource
import select
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

DIRECTORY = Path(sys.argv[1])
SECTION = struct.Struct("<IIQQQQIIQQ")


def core(rank: str) -> tuple[bytes, bytes]:
    """A small 64-bit ELF file in two halves: one section with the rank in it, the table of sections at the end."""
    content = f"dump of rank {rank}\n".encode() * 64
    table = 64 + len(content)
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, table)
    struct.pack_into("<HH", header, 0x3A, SECTION.size, 2)
    sections = SECTION.pack(*[0] * 10) + SECTION.pack(0, 1, 0, 0, 64, len(content), 0, 0, 1, 0)
    return bytes(header) + content[:500], content[500:] + sections


def filled(name: str) -> str:
    return os.environ[name].replace("%p", str(os.getpid())).replace("%h", os.uname().nodename)


def dump(rank: str) -> None:
    if (DIRECTORY / f"silent_{rank}").exists():
        return
    first, second = core(rank)
    with open(filled("CUDA_COREDUMP_FILE"), "wb", buffering=0) as file:
        file.write(first)
        while (DIRECTORY / f"late_{rank}").exists():
            time.sleep(0.02)
        if not (DIRECTORY / f"cut_{rank}").exists():
            file.write(second)
    if (DIRECTORY / f"ends_{rank}").exists():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()


def watch(pipe: int, rank: str) -> None:
    while True:
        select.select([pipe], [], [])
        if os.read(pipe, 1 << 16):
            dump(rank)


def rank(number: str) -> None:
    if "CUDA_COREDUMP_PIPE" in os.environ and not (DIRECTORY / f"no_pipe_{number}").exists():
        path = filled("CUDA_COREDUMP_PIPE")
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        # Without a writer a read gives nothing, so a second end of our own keeps select asleep.
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        threading.Thread(target=watch, args=(pipe, number), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Event().wait()


def launch() -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(DIRECTORY)],
            env={**os.environ, "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
        )
        for n in range(2)
    ]
    for process in ranks:
        assert process.stdout is not None
        process.stdout.readline()
    sys.stdout.write(" ".join(str(p.pid) for p in ranks) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    for process in ranks:
        process.kill()
        process.wait()


if "RANK" in os.environ:
    rank(os.environ["RANK"])
else:
    launch()
