#!/usr/bin/env python3
"""What a sample of the GPUs costs: time, and the child's share of a core at one sample a second. Needs an NVIDIA driver."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from gpudiag.collect.nvml import Nvml
from gpudiag.model.reading import Ok


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--samples", type=int, default=10, help="samples, one a second (default 10)")
    samples = parser.parse_args().samples
    times: list[float] = []
    with Nvml(30.0) as nvml:
        started = time.perf_counter()
        nvml.ask()
        reading = nvml.answer()
        first_ms = (time.perf_counter() - started) * 1000
        if not isinstance(reading, Ok):
            sys.exit(repr(reading))
        child = psutil.Process().children()[0]
        before, began = sum(child.cpu_times()[:2]), time.monotonic()
        for number in range(1, samples + 1):
            time.sleep(max(0.0, began + number - time.monotonic()))
            started = time.perf_counter()
            nvml.ask()
            reading = nvml.answer()
            times.append((time.perf_counter() - started) * 1000)
        share = (sum(child.cpu_times()[:2]) - before) / (time.monotonic() - began)
    if not isinstance(reading, Ok):
        sys.exit(repr(reading))
    gpus = reading.value.gpus
    each = [g.took_s * 1000 for g in gpus]
    print(f"{len(gpus)} GPUs, driver {reading.value.driver}; first sample with start of the child {first_ms:.0f} ms")
    print(f"sample {statistics.median(times):.1f} ms median, {max(times):.1f} ms worst; {statistics.mean(each):.1f} ms a GPU")
    print(f"share of a core at 1 Hz: {share * 100:.2f} %, {share * 100 / max(len(gpus), 1):.2f} % a GPU")
    for gpu in gpus:
        print(f"GPU {gpu.index}: {gpu}")


if __name__ == "__main__":
    main()
