"""Starts the ranks of one scenario, as torchrun would, but leaves them alone when one dies.

    launcher.py SCENARIO PORT DIRECTORY

It says 'imported' when all ranks have imported torch, passes the line 'go' on to them, says 'ready' when all have said so,
and ends them when its stdin ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORLD = 2


def main() -> None:
    scenario, port, directory = sys.argv[1:4]
    ranks = []
    for rank in range(WORLD):
        environ = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(WORLD),
            "LOCAL_WORLD_SIZE": str(WORLD),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "SCENARIO_DIRECTORY": directory,
        }
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), scenario]
        with (Path(directory) / f"rank{rank}.log").open("wb") as log:
            ranks.append(subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log))
    try:
        _all_say(ranks, b"imported\n")
        sys.stdin.readline()
        for rank_process in ranks:
            assert rank_process.stdin is not None
            rank_process.stdin.write(b"go\n")
            rank_process.stdin.flush()
        _all_say(ranks, b"ready\n")
        sys.stdin.read()
    finally:
        for rank_process in ranks:
            rank_process.kill()


def _all_say(ranks: list[subprocess.Popen[bytes]], word: bytes) -> None:
    for rank in ranks:
        assert rank.stdout is not None
        while (line := rank.stdout.readline()) != word:
            if not line:
                sys.exit(f"rank {ranks.index(rank)} ended before it said {word!r}")
    sys.stdout.write(word.decode())
    sys.stdout.flush()


main()
