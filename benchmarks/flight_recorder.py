#!/usr/bin/env python3
"""Comparing flight-recorder dumps: gpudiag beside `torchfrtrace` on the same files, time, memory and verdict.

The dumps are made up (tests/flight_recorder/dumps.py). --torch names a Python that has torch; without it only gpudiag runs.
Beside wall time stands processor time, which a busy machine changes less: gpudiag uses a process for each processor,
torchfrtrace one. The last line of a kind gives the time for each rank at each size: equal numbers are linear growth.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.flight_recorder.dumps import Fault, write  # noqa: E402

OURS = """
import sys
from pathlib import Path
from gpudiag.collect.flight_recorder import analyze
from gpudiag.collect.flight_recorder_load import Dump
reading = analyze([Dump(str(p)) for p in sorted(Path(sys.argv[1]).iterdir())])
for p in reading.value.problems[:1]:
    odd = p.absent or min((s.ranks for s in p.sides), key=len)
    print("gpudiag:", p.kind, "at", p.sequence, "ranks", *odd[:8])
print("gpudiag:", reading.value.records, "records,", len(reading.value.problems), "problems")
"""
THEIRS = "import sys; from torch.distributed.flight_recorder.fr_trace import main; main(sys.argv[1:])"


class Run(NamedTuple):
    """Wall and processor time in seconds, MiB of the largest process below, and the end of the output."""

    wall_s: float
    cpu_s: float
    mib: float
    said: str


def measured(command: list[str]) -> Run:
    watcher = (
        "import os,resource,subprocess,sys,time\n"
        "t=time.perf_counter(); p=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE,stderr=subprocess.STDOUT)\n"
        "u=resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(time.perf_counter()-t, u.ru_utime+u.ru_stime, u.ru_maxrss/1024)\n"
        "sys.stdout.write(p.stdout.decode(errors='replace')[-6000:])\n"
    )
    done = subprocess.run([sys.executable, "-c", watcher, *command], capture_output=True, text=True, cwd=ROOT, check=False)
    first, _, rest = done.stdout.partition("\n")
    wall_s, cpu_s, mib = map(float, first.split())
    return Run(wall_s, cpu_s, mib, rest)


def compare(ranks: int, records: int, fault: Fault, torch: str | None) -> tuple[float, float]:
    """Print one comparison; milliseconds for each rank that gpudiag took, by the clock and of processors."""
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory) / "dumps"
        write(where, ranks, records, fault, at=records, odd=min(5, ranks - 1))
        ours = measured([sys.executable, "-c", OURS, str(where)])
        print(f"{fault:8} {ranks:5} ranks x {records}")
        print(f"  gpudiag      {ours.wall_s:6.1f} s, processor {ours.cpu_s:6.1f} s, largest process {ours.mib:5.0f} MiB")
        print("   " + "\n   ".join(ours.said.strip().splitlines()[-2:]))
        if torch is not None:
            theirs = measured([torch, "-c", THEIRS, str(where), "-p", "dump_"])
            ratio, cpu_ratio = theirs.wall_s / ours.wall_s, theirs.cpu_s / ours.cpu_s
            print(f"  torchfrtrace {theirs.wall_s:6.1f} s, processor {theirs.cpu_s:6.1f} s, {theirs.mib:5.0f} MiB:", end=" ")
            print(f"{ratio:.1f} times as long, {cpu_ratio:.1f} times the processor")
            telling = ("ismatch", "MISMATCH", "missing", "UNDECIDED", "no errors")
            told = [line for line in theirs.said.splitlines() if any(w in line for w in telling)]
            print("   torchfrtrace: " + "\n   ".join(line[:200] for line in told[-3:]))
    return ours.wall_s / ranks * 1e3, ours.cpu_s / ranks * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="256,512,1024", help="comma-separated numbers of ranks")
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--torch", help="a Python with torch, for torchfrtrace")
    parser.add_argument("--faults", default="missing", help="comma-separated: missing,type,size,dtype,state")
    options = parser.parse_args()
    faults: list[Fault] = ["missing", "type", "size", "dtype", "state"]
    for fault in faults:
        if fault in options.faults.split(","):
            sizes = [int(n) for n in options.ranks.split(",")]
            each_ms = {ranks: compare(ranks, options.records, fault, options.torch) for ranks in sizes}
            print(
                "  ms for each rank: " + ", ".join(f"{w:.1f} ({c:.1f} of processors) of {n}" for n, (w, c) in each_ms.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
