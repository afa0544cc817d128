"""What an attach costs on a server of many processes: two that work, each with a pool of idle ones, NCCL mapped, and a log file.

So stand the processes of an SGLang with two ranks (71 or 72, most of them compile workers of torch). Wall time is that of the
report, from the scan to the log; without the time between the starts of the two looks it is what attach itself adds to it. On
few processors the first look takes longer than a second: then --interval 2 tells. Informational: exits 0 whatever it prints.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpudiag.collect.nccl_layout import SHIPPED

ROOT = Path(__file__).resolve().parents[1]
TARGET_S = 2.0
TREE = """
import json, os, sys, threading
from pathlib import Path
from tests.nccl.programs.fake_nccl import library

home, idle, symbols, build_id = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
# Every process of SGLang has NCCL mapped, and the pools were forked after it.
image = library(home, build_id, max(symbols.values()) + 4096)
sys.path.insert(0, str(home))
import scheduler

def rank():
    never = threading.Event()
    for _ in range(40):
        threading.Thread(target=never.wait, daemon=True).start()
    pipe, _ = os.pipe()
    for _ in range(idle):
        if os.fork() == 0:
            os.read(pipe, 1)
            return
    print("[2026-11-30 12:00:00 TP0] Decode batch, #running-req: 1, gen throughput (token/s): 100.0", flush=True)
    scheduler.step0(threading.RLock())

for _ in range(2):
    if os.fork() == 0:
        rank()
        os._exit(0)
print("[2026-11-30 12:00:00] The server is fired up and ready to roll!", flush=True)
sys.stdin.read()
"""


def scheduler() -> str:
    """Source of twelve functions of a hundred lines that call each other with a lock held, as those of a scheduler are."""
    lines = ["import time", "def turn(lock):", "    while True:", "        time.sleep(0.003)"]
    for step in range(12):
        lines.append(f"def step{step}(lock):")
        lines += [f"    value = [lock, {{'name{n}': ({n}, {n} + {step})}}] if lock else None" for n in range(100)]
        lines += ["    with lock:", f"        step{step + 1}(lock)" if step < 11 else "        turn(lock)"]
    return "\n".join(lines) + "\n"


def attach(pid: int, interval_s: float) -> tuple[float, float]:
    """Wall seconds by the report, and from the start of the command to its end."""
    command = [sys.executable, "-m", "gpudiag", "attach", str(pid), "--once", "--json", "--fail-on", "never"]
    began = time.perf_counter()
    done = subprocess.run([*command, "--interval", str(interval_s)], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["cost"]["wall_s"], time.perf_counter() - began


def members(group: int) -> int:
    """Processes of a process group."""
    found = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += os.getpgid(int(name)) == group
        except ProcessLookupError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--runs", type=int, default=5)
    parser.add_argument("--processes", type=int, default=72)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between the starts of the looks (default 1)")
    options = parser.parse_args()
    idle = (options.processes - 3) // 2
    build_id, layout = next(iter(SHIPPED.items()))
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as log:
        (Path(home) / "scheduler.py").write_text(scheduler())
        command = [sys.executable, "-c", TREE, home, str(idle), json.dumps(layout.symbols), build_id]
        tree = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd=ROOT)
        try:
            while members(tree.pid) < 3 + 2 * idle:
                time.sleep(0.05)
            taken = [attach(tree.pid, options.interval) for _ in range(options.runs)]
        finally:
            os.killpg(tree.pid, signal.SIGKILL)
            tree.wait()
    walls, commands = zip(*taken, strict=True)
    best, median = min(walls), statistics.median(walls)
    print(f"{3 + 2 * idle} processes, looks {options.interval:g} s apart: best {best:.2f} s  median {median:.2f} s", end="  ")
    print(f"(target {TARGET_S} s)  beside the {options.interval:g} s: {median - options.interval:.2f} s", end="  ")
    print(f"whole command: median {statistics.median(commands):.2f} s")


if __name__ == "__main__":
    main()
