#!/usr/bin/env python3
"""Comparing flight-recorder dumps: gpudiag beside `torchfrtrace` on the same files, time, memory and verdict.

The dumps are made up (tests/flight_recorder/dumps.py). --torch names a Python that has torch; without it only gpudiag runs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

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


def measured(command: list[str]) -> tuple[float, float, str]:
    """Seconds, MiB of the largest process below, and the last lines of output."""
    watcher = (
        "import os,resource,subprocess,sys,time\n"
        "t=time.perf_counter(); p=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE,stderr=subprocess.STDOUT)\n"
        "print(time.perf_counter()-t, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss/1024)\n"
        "sys.stdout.write(p.stdout.decode(errors='replace')[-6000:])\n"
    )
    done = subprocess.run([sys.executable, "-c", watcher, *command], capture_output=True, text=True, cwd=ROOT, check=False)
    first, _, rest = done.stdout.partition("\n")
    seconds, mib = map(float, first.split())
    return seconds, mib, rest


def compare(ranks: int, records: int, fault: Fault, torch: str | None) -> None:
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory) / "dumps"
        write(where, ranks, records, fault, at=records, odd=min(5, ranks - 1))
        ours_s, ours_mib, said = measured([sys.executable, "-c", OURS, str(where)])
        print(f"{fault:8} {ranks:5} ranks x {records}: gpudiag {ours_s:6.1f} s, largest process {ours_mib:6.0f} MiB")
        print("   " + "\n   ".join(said.strip().splitlines()[-2:]))
        if torch is None:
            return
        theirs_s, theirs_mib, said = measured([torch, "-c", THEIRS, str(where), "-p", "dump_"])
        print(f"{'':8} torchfrtrace {theirs_s:6.1f} s, {theirs_mib:6.0f} MiB: {theirs_s / ours_s:.1f} times as long")
        told = [
            line
            for line in said.splitlines()
            if any(w in line for w in ("ismatch", "MISMATCH", "missing", "UNDECIDED", "no errors"))
        ]
        print("   torchfrtrace: " + "\n   ".join(line[:200] for line in told[-3:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--torch", help="a Python with torch, for torchfrtrace")
    parser.add_argument("--faults", default="missing", help="comma-separated: missing,type,size,dtype,state")
    options = parser.parse_args()
    faults: list[Fault] = ["missing", "type", "size", "dtype", "state"]
    for fault in faults:
        if fault in options.faults.split(","):
            compare(options.ranks, options.records, fault, options.torch)


if __name__ == "__main__":
    main()
