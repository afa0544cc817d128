#!/usr/bin/env python3
"""What reading the NCCL state of several ranks costs. Informational: exits 0 whatever it finds.

The ranks are fakes (tests/nccl/programs/fake_nccl.py): processes with communicator tables laid out as the shipped table
says. With --pid the named real processes are read instead, and
NCCL's own `ncclras` is asked in turn with each read, if it is on PATH and their service answers.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpudiag.collect.deadline import Guard
from gpudiag.collect.guard_protocol import StateReply, StateRequest
from gpudiag.collect.nccl_layouts import Layouts
from gpudiag.collect.nccl_state import read_states
from gpudiag.model.reading import Ok
from tests.nccl.targets import fake, slot

TARGET_FIRST_MS = 100.0
TARGET_LATER_MS = 10.0


def measure(pids: list[int], runs: int) -> None:
    with Guard(5.0) as guard:
        layouts = Layouts()
        # A look has asked for the states of all processes before it comes to NCCL: the child is up by then.
        guard.ask([StateRequest(pid=pid, want=("cmdline",)) for pid in pids], StateReply)
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            found = read_states(pids, guard, layouts)
            times.append((time.perf_counter() - start) * 1000)
    communicators = sum(len(n.communicators) for r in found.values() if isinstance(r, Ok) for n in r.value)
    failed = [repr(r) for r in found.values() if not isinstance(r, Ok)]
    print(f"{len(pids)} processes, {communicators} communicators{', not read: ' + failed[0] if failed else ''}")
    later = times[1:]
    print(f"first read {times[0]:6.1f} ms (target {TARGET_FIRST_MS:.0f})")
    middle, worst = statistics.median(later), max(later)
    print(f"later      {middle:6.1f} ms median, {worst:.1f} ms worst of {len(later)} (target {TARGET_LATER_MS:.0f})")


def compare(pids: list[int], runs: int) -> None:
    """Reads and `ncclras -v` in turn: one process start each for the latter, its service asked for all ranks."""
    tool = shutil.which("ncclras")
    if tool is None:
        print("ncclras is not on PATH: no comparison")
        return
    ours, theirs = [], []
    with Guard(5.0) as guard:
        layouts = Layouts()
        read_states(pids, guard, layouts)
        for _ in range(runs):
            start = time.perf_counter()
            read_states(pids, guard, layouts)
            between = time.perf_counter()
            done = subprocess.run([tool, "-v", "-t", "5"], check=False, capture_output=True, text=True, timeout=30)
            end = time.perf_counter()
            if done.returncode != 0:
                print(f"ncclras: status {done.returncode}: {(done.stderr or done.stdout).strip()[:200]}")
                return
            ours.append((between - start) * 1000)
            theirs.append((end - between) * 1000)
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(f"read {mine:.1f} ms, ncclras -v {other:.1f} ms (medians of {runs} in turn): {other / mine:.1f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--runs", type=int, default=50, help="reads of all processes (default 50)")
    parser.add_argument("--pid", type=int, action="append", help="a real process, instead of fakes; may be repeated")
    options = parser.parse_args()
    if options.pid:
        measure(options.pid, options.runs)
        compare(options.pid, options.runs)
        return
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        pids = []
        for rank in range(8):
            slots = [slot(100 + rank // 2, rank % 2), slot(200 + rank % 4, rank % 2), *[None] * 30]
            pids.append(stack.enter_context(fake(Path(directory) / str(rank), "2.28.9", slots)).pid)
        measure(pids, options.runs)


if __name__ == "__main__":
    main()
