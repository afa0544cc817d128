#!/usr/bin/env python3
"""What watching costs the watched: throughput of a job with and without a look a second, in alternating intervals.

    watch_cost.py PID PID ...

The job's own progress is read from NCCL's counters in its memory, twice an interval. Watching is what a watcher does at
1 Hz: states of the processes, their counters, a sample of the GPUs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpudiag.collect.deadline import Guard
from gpudiag.collect.look import LookOptions, observe
from gpudiag.collect.nccl_layouts import Layouts
from gpudiag.collect.nccl_state import read_states
from gpudiag.model.reading import Ok


def launched(pid: int, guard: Guard, layouts: Layouts) -> int:
    reading = read_states([pid], guard, layouts)[pid]
    if not isinstance(reading, Ok):
        sys.exit(repr(reading))
    return sum(c.total for n in reading.value for c in n.communicators)


def interval(pids: list[int], seconds: float, watch: bool, guard: Guard, layouts: Layouts) -> float:
    """Collectives a second over one interval."""
    start, before = time.perf_counter(), launched(pids[0], guard, layouts)
    if watch:
        observe(pids, LookOptions(stacks="none"), samples=int(seconds), interval_s=1.0)
    time.sleep(max(0.0, start + seconds - time.perf_counter()))
    after, end = launched(pids[0], guard, layouts), time.perf_counter()
    return (after - before) / (end - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pids", type=int, nargs="+")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    ratios = []
    with Guard(5.0) as guard:
        layouts = Layouts()
        for pair in range(options.pairs):
            order = (False, True) if pair % 2 == 0 else (True, False)
            rates = {watch: interval(options.pids, options.seconds, watch, guard, layouts) for watch in order}
            ratios.append(rates[True] / rates[False] - 1)
            print(
                f"pair {pair:2}: {rates[False]:8.1f}/s alone, {rates[True]:8.1f}/s watched, {ratios[-1] * 100:+.2f} %", flush=True
            )
    mean, error = statistics.mean(ratios) * 100, statistics.stdev(ratios) * 100 / math.sqrt(len(ratios))
    print(
        f"watching changes throughput by {mean:+.3f} % (95 % interval {mean - 2.26 * error:+.3f} to {mean + 2.26 * error:+.3f} %)"
    )


if __name__ == "__main__":
    main()
