#!/usr/bin/env python3
"""What supervision costs a server that serves: processor time, and throughput with and without it, in alternating intervals.

    launch.py                                   a small server of real processes, standard library only
    launch.py --vllm PYTHON MODEL               vLLM in this interpreter's environment, on the CPU

Without means: the supervisor and its helpers are stopped (SIGSTOP) for the interval; the server goes on either way. One
client asks for 32 tokens again and again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpudiag.collect import procfs
from gpudiag.collect.family import descendants
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.run_directory import RunDirectory
from gpudiag.launch.start import Started, start
from gpudiag.model.run import LaunchPlan

ROOT = Path(__file__).resolve().parents[1]
TICKS_S = os.sysconf("SC_CLK_TCK")
BODY = json.dumps({"model": "tiny", "prompt": "def hello", "max_tokens": 32, "temperature": 0, "ignore_eos": True})
T_95 = {10: 2.262, 12: 2.201, 15: 2.145, 20: 2.093, 30: 2.045}
"""Two-sided quantiles of Student's distribution, by number of pairs."""


def plan_for(options: argparse.Namespace, directory: Path) -> LaunchPlan:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    environment: dict[str, str] = {}
    if options.vllm:
        python, model = options.vllm
        argv = [str(Path(python).with_name("vllm")), "serve", model, "--served-model-name", "tiny", "--host", "127.0.0.1"]
        argv += ["--port", str(port), "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager"]
        environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    else:
        python, model = sys.executable, "small"
        program = ROOT / "tests" / "launch" / "programs" / "server.py"
        argv = [python, str(program), "vllm.entrypoints.openai.api_server", "--port", str(port)]
    return LaunchPlan(
        run_id="benchmark",
        run_directory=str(directory),
        engine="vllm",
        version=None,
        python=python,
        argv=tuple(argv),
        environment=tuple(environment.items()),
        settings=(),
        profile=None,
        model=model,
        drafter=None,
        host="127.0.0.1",
        port=port,
        tensor_parallel=1,
    )


def helpers(started: Started) -> list[int]:
    """The supervisor and those of its descendants that are not the server."""
    server = set(descendants([started.server_pid]))
    return [pid for pid in descendants([started.supervisor_pid]) if pid not in server]


def cpu_s(pids: list[int]) -> float:
    return sum(procfs.read_stat(pid).cpu_ticks for pid in pids) / TICKS_S


def interval(port: int, seconds: float) -> float:
    """Requests a second."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/completions", body=BODY, headers={"Content-Type": "application/json"})
        connection.getresponse().read()
        connection.close()
        count += 1
    return count / (time.perf_counter() - began)


def pair(started: Started, port: int, seconds: float, *, watched_first: bool) -> float:
    """By how much supervision changed the throughput: -0.01 is one percent less."""
    rates = {}
    for watched in (watched_first, not watched_first):
        number = signal.SIGCONT if watched else signal.SIGSTOP
        for pid in helpers(started):
            os.kill(pid, number)
        rates[watched] = interval(port, seconds)
    for pid in helpers(started):
        os.kill(pid, signal.SIGCONT)
    return rates[True] / rates[False] - 1


def measure(started: Started, port: int, options: argparse.Namespace) -> None:
    for what, load in (("idle", False), ("one client", True)):
        pids = helpers(started)
        before, began = cpu_s(pids), time.perf_counter()
        if load:
            interval(port, options.seconds * 3)
        else:
            time.sleep(options.seconds * 3)
        share = (cpu_s(pids) - before) / (time.perf_counter() - began)
        rss = sum(procfs.read_stat(pid).rss_bytes for pid in pids) / 1e6
        print(f"{what}: {share * 100:.2f} % of a core in {len(pids)} processes, {rss:.0f} MB", flush=True)
    interval(port, options.seconds)
    changes = [pair(started, port, options.seconds, watched_first=bool(n % 2)) for n in range(options.pairs)]
    mean, error = statistics.mean(changes) * 100, statistics.stdev(changes) * 100 / math.sqrt(len(changes))
    t = T_95[max((n for n in T_95 if n <= len(changes)), default=10)]
    looks = len(os.listdir(started.run / "evidence"))
    print(f"evidence was taken {looks} times, once of them when it was ready")
    print(f"throughput: {mean:+.2f} % (95 % interval {mean - t * error:+.2f} to {mean + t * error:+.2f} %, {len(changes)} pairs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", nargs=2, metavar=("PYTHON", "MODEL"))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpudiag-bench-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        plan = plan_for(options, Path(folder) / "run")
        started = start(plan, SuperviseOptions(tui=False))
        run = RunDirectory(started.run)
        try:
            while (progress := run.progress()) is None or progress.state == "starting":
                time.sleep(0.5)
            if progress.state != "serving":
                sys.exit(progress.sentence)
            measure(started, plan.port, options)
        finally:
            os.kill(started.supervisor_pid, signal.SIGTERM)
            while (last := run.progress()) is not None and last.state not in ("stopped", "crashed", "killed"):
                time.sleep(0.1)


if __name__ == "__main__":
    main()
