"""A job of ranks that have torch's flight recorder, without torch: each reads its pipe in a thread and dumps on a byte.

job.py DIRECTORY WORLD_SIZE starts the ranks; with RANK in its environment it is one of them, and its dump is what lies in
DIRECTORY/prepared_RANK. DIRECTORY/silent_RANK makes that rank ignore its pipe. Ends when its stdin does.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from pathlib import Path

DIRECTORY = Path(sys.argv[1])


def watch(pipe: int, rank: str) -> None:
    while not (DIRECTORY / f"silent_{rank}").exists():
        select.select([pipe], [], [])
        if os.read(pipe, 128):
            with open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank, "wb") as file:
                file.write((DIRECTORY / f"prepared_{rank}").read_bytes())


def rank(number: str) -> None:
    stem = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
    if stem:
        path = f"{stem}{number}.pipe"
        os.mkfifo(path)
        # As torch does it: without a writer a read gives nothing, so a second end of our own keeps select asleep.
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        threading.Thread(target=watch, args=(pipe, number), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Event().wait()


def launch() -> None:
    size = int(sys.argv[2])
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(DIRECTORY)],
            env={**os.environ, "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)},
            stdout=subprocess.PIPE,
        )
        for n in range(size)
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
