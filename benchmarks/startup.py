#!/usr/bin/env python3
"""How long `gpudiag --help` takes, next to an interpreter that does nothing. Informational: exits 0 whatever it finds.

Runs of the three commands alternate, so that a busy machine slows all of them alike; the best time says what the program
costs, the median what a user gets here and now.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

TARGET_MS = 150

COMMANDS = {
    "bare interpreter (-I -S)": [sys.executable, "-I", "-S", "-c", "pass"],
    "python -c pass": [sys.executable, "-c", "pass"],
    "gpudiag --help": [sys.executable, "-m", "gpudiag", "--help"],
}
GPUDIAG = "gpudiag --help"

COUNT_MODULES = """
import contextlib, io, sys
before = len(sys.modules)
from gpudiag.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
print(len(sys.modules) - before)
"""


def wall_ms(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--runs", type=int, default=15, help="runs of each command (default 15)")
    runs = parser.parse_args().runs

    for command in COMMANDS.values():
        wall_ms(command)  # fills the page cache and writes the byte code
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            times[name].append(wall_ms(command))

    best = {name: min(values) for name, values in times.items()}
    print(f"{'':26}{'best':>9}{'median':>9}{'x bare':>8}{'x pass':>8}")
    bare, nothing, _ = best.values()
    for name, values in times.items():
        print(
            f"{name:26}{best[name]:6.0f} ms{statistics.median(values):6.0f} ms{best[name] / bare:8.1f}{best[name] / nothing:8.1f}"
        )
    modules = subprocess.run([sys.executable, "-c", COUNT_MODULES], check=True, text=True, stdout=subprocess.PIPE).stdout
    verdict = "within" if best[GPUDIAG] <= TARGET_MS else "over"
    print(f"\n{int(modules)} modules loaded for --help; best of {runs} is {verdict} the target of {TARGET_MS} ms")


if __name__ == "__main__":
    main()
