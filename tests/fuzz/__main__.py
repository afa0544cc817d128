"""Damage real samples and feed them to every parser, until the time is up: python -m tests.fuzz [--seconds 300] [--only NAME]

Prints inputs for each parser, and of each failure the seed that makes it again: --only NAME --seed N.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.fuzz.damage import attack
from tests.fuzz.parsers import PARSERS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="for all parsers together")
    parser.add_argument("--only", default="", help="parsers whose name holds this")
    parser.add_argument("--seed", type=int, default=None, help="this one input only")
    options = parser.parse_args()
    chosen = [p for p in PARSERS if options.only in p.name]
    failed = 0
    for target in chosen:
        first = options.seed if options.seed is not None else time.time_ns()
        until = time.monotonic() + options.seconds / len(chosen)
        done = 0
        while time.monotonic() < until and not (done and options.seed is not None):
            problem = attack(target, first + done)
            if problem is not None:
                failed += 1
                print(f"{target.name} --seed {first + done}: {problem!r}")
                traceback.print_exception(problem)
                break
            done += 1
        print(f"{target.name:45} {done:7} inputs", flush=True)
    print(f"{failed} of {len(chosen)} parsers failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
