"""A fuzz target: damaged real logs and random joins of their lines, until the time is up or something breaks.

    python tests/logs/fuzz_explain.py [--seconds 60] [--seed N]

The reader and the rules must neither raise nor take longer than a second for 100 KB, and what they report must hold no
character that a terminal acts on. Prints the seed of each failure and writes its input beside this file as crash-SEED.
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gpudiag.logs.facts import read_stream
from tests.logs.support import DATA, report_of
from tests.logs.test_hostile import FRAGMENTS, harmless

MOST_BYTES = 100_000
MOST_SECONDS = 5.0


def corpus() -> list[bytes]:
    return [gzip.decompress(path.read_bytes())[:MOST_BYTES] for path in sorted(DATA.glob("*.log.gz"))]


def damaged(source: random.Random, logs: list[bytes]) -> bytes:
    """One input: lines of several logs shuffled in runs, some cut, doubled, overwritten, or replaced by fragments."""
    lines = [line for log in source.sample(logs, 3) for line in log.split(b"\n")]
    start = source.randrange(len(lines))
    lines = lines[start : start + source.randrange(1, 400)]
    for _ in range(source.randrange(1, 40)):
        at = source.randrange(len(lines))
        match source.randrange(6):
            case 0:
                lines[at] = lines[at][: source.randrange(len(lines[at]) + 1)]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines[at] = source.choice(FRAGMENTS)
            case 3:
                lines[at] += source.choice(FRAGMENTS)
            case 4:
                lines[at] = source.randbytes(source.randrange(80))
            case _:
                other = source.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
    return b"\n".join(lines)[:MOST_BYTES]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="run this one input only")
    arguments = parser.parse_args()
    logs = corpus()
    until = time.monotonic() + arguments.seconds
    seed = arguments.seed if arguments.seed is not None else time.time_ns()
    done = failed = 0
    while time.monotonic() < until:
        data = damaged(random.Random(seed), logs)  # noqa: S311, inputs need to be repeatable, not secret
        began = time.monotonic()
        try:
            harmless(report_of(read_stream(io.BytesIO(data))))
            problem = "" if time.monotonic() - began < MOST_SECONDS else "slow"
        except Exception as error:  # noqa: BLE001, a fuzzer is there to see every kind of failure
            problem = repr(error)
        done += 1
        if problem:
            failed += 1
            Path(__file__).with_name(f"crash-{seed}").write_bytes(data)
            print(f"seed {seed}: {problem}")
        if arguments.seed is not None:
            break
        seed += 1
    print(f"{done} inputs, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
