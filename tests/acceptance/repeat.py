"""Repeat the demo's scenarios and a healthy busy group, and count: python -m tests.acceptance.repeat -n 20 --healthy 200

Seeds, names, rank counts, victims and start order differ from run to run. Prints one row per scenario: right verdicts,
abstentions, wrong ones with what was said. Exits 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from gpudiag.demo.run import start
from gpudiag.demo.scenarios import SCENARIOS, Scenario
from tests.acceptance.test_demo import is_right
from tests.demo.renamed import rename_scripts
from tests.programs.harness import running
from tests.support.diagnosing import describe, judge, look_at


def once(scenario: Scenario, rng: random.Random) -> str:
    """'right', 'insufficient' or what was said instead."""
    seed, ranks = rng.randrange(1 << 30), rng.randint(2, 6)
    with tempfile.TemporaryDirectory() as folder:
        copy = rename_scripts(Path(folder) / "copy", rng)
        with start(scenario.name, ranks=ranks, seed=seed, scripts=copy.scripts, names=copy.names) as server:
            server.wait_until_stuck()
            report = judge(look_at(server.root_pid), server.root_pid)
            if is_right(report, scenario, server.victim_rank):
                return "right"
    if report.verdict.status == "insufficient":
        return "insufficient"
    return f"seed {seed}, {ranks} ranks: {describe(report)}"


def healthy(samples: int, interval_s: float) -> tuple[Counter[str], Counter[str]]:
    """Verdicts on a group that reduces as fast as it can: those that are no error, and those that are, which is wrong."""
    harmless: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    with running("healthy_busy", ranks=4) as program:
        for _ in range(samples):
            report = judge(look_at(program.root_pid, interval_s=interval_s), program.root_pid)
            if report.verdict.severity == "error":
                wrong[describe(report)] += 1
            else:
                harmless[f"{report.verdict.status} {report.verdict.code or ''}".rstrip()] += 1
    return harmless, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--runs", type=int, default=20, help="runs of each scenario (default 20)")
    parser.add_argument("--healthy", type=int, default=0, help="observations of a healthy busy group (default none)")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between the two looks at the healthy group")
    parser.add_argument("--only", help="one scenario")
    options = parser.parse_args()
    rng = random.SystemRandom()
    wrong = 0
    for scenario in SCENARIOS:
        if options.only not in (None, scenario.name):
            continue
        results = Counter(once(scenario, rng) for _ in range(options.runs))
        right, abstained = results.pop("right", 0), results.pop("insufficient", 0)
        wrong += results.total()
        counts = f"right {right:3}  insufficient {abstained:3}  wrong {results.total():3}"
        print(f"{scenario.name:16} {counts}  {dict(results) or ''}", flush=True)
    if options.healthy:
        harmless, errors = healthy(options.healthy, options.interval)
        wrong += errors.total()
        print(f"{'healthy busy':16} {dict(harmless)}  wrong {errors.total():3}  {dict(errors) or ''}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
