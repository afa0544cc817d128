"""What an attach costs on a hung server of 8 ranks with 60 threads each: wall time to the verdict, and what it stops.

The same attach then runs under a seccomp filter that denies ptrace and every way to send a signal: the default path must
give the same report. Informational: prints figures, exits 0 whatever they are, 1 only if the two reports differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpudiag.demo.run import start

TARGET_S = 2.5
FILTER = Path(__file__).parent.parent / "tests" / "collect" / "seccomp.py"
DENIED = "ptrace,kill,tkill,tgkill,pidfd_send_signal"


def attach(pid: int, *, filtered: bool) -> tuple[dict[str, Any], float]:
    """The report, and the seconds from the start of the command to its end."""
    command = ["-m", "gpudiag", "attach", str(pid), "--once", "--json", "--fail-on", "never"]
    prefix = [sys.executable, str(FILTER), DENIED, "--"] if filtered else [sys.executable]
    began = time.perf_counter()
    done = subprocess.run([*prefix, *command], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout), time.perf_counter() - began


def essence(report: dict[str, Any]) -> Any:
    """What must not depend on the moment: the verdict, who waits for whom, what could not be read."""
    waits = sorted((w["waiter"], w["holder"], w["kind"], w["need"]) for w in report["waits"])
    findings = [(f["code"], f["confidence"], f["title"], f["subjects"]) for f in report["findings"]]
    return report["verdict"], findings, waits, report["not_read"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--runs", type=int, default=5, help="attaches of each kind (default 5)")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--threads", type=int, default=60, help="threads of each rank (default 60)")
    options = parser.parse_args()

    with start("rank-missing", ranks=options.ranks, extra_threads=options.threads) as running:
        running.wait_until_stuck()
        walls: dict[bool, list[float]] = {False: [], True: []}
        reports: dict[bool, dict[str, Any]] = {}
        for _ in range(options.runs):
            for filtered in (False, True):
                reports[filtered], wall = attach(running.root_pid, filtered=filtered)
                walls[filtered].append(wall)
    verdict = reports[False]["verdict"]
    print(f"{options.ranks} ranks x {options.threads} threads: {verdict['code']} {verdict['title']} ({verdict['confidence']})")
    for filtered, name in ((False, "default"), (True, "ptrace and signals denied")):
        best, median = min(walls[filtered]), statistics.median(walls[filtered])
        cost = reports[filtered]["cost"]
        spent = f"looking {cost['wall_s']} s, stopped {cost['stopped_s']} s"
        print(f"{name:28} best {best:.2f} s  median {median:.2f} s  (target {TARGET_S} s)  {spent}")
    same = essence(reports[False]) == essence(reports[True])
    print("reports are the same" if same else "REPORTS DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
