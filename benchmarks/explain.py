"""How fast a large log is read, against `grep -c Traceback` on the same file in the same run.

    python benchmarks/explain.py [--megabytes 1000] [--keep FILE]

Writes a log of that size with one cause in it, every tenth line of which holds the word Error, reads it in a fresh
process, and prints one JSON object: throughput in MB/s, peak resident memory in MiB, the verdict, and the ratio to grep, by
the clock on the wall and in processor time. On a busy machine only the second means something: the first also measures the
neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEALTHY = (
    b"(APIServer pid=4242) INFO 11-29 18:31:17 [loggers.py:335] Engine 000: Avg prompt throughput: 0.5 tokens/s, "
    b"Avg generation throughput: 1.6 tokens/s, Running: %d reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%%, "
    b"Prefix cache hit rate: 0.0%%\n"
)
HARMLESS = (
    b"(APIServer pid=4242) INFO 11-29 18:31:17 [serving.py:81] Request cmpl-%08d ended with ValueError: Error in its schema, "
    b"the client was told\n"
)
START = (
    b"(APIServer pid=4242) INFO 11-29 18:28:29 [api_utils.py:286] "
    b"non-default args: {'model': '/tiny', 'tensor_parallel_size': 2}\n"
    b"INFO:     Application startup complete.\n"
)
CAUSE = b"""(Worker_TP1 pid=4245) ERROR 11-29 18:40:00 [multiproc_executor.py:1056] WorkerProc hit an exception.
(Worker_TP1 pid=4245) ERROR 11-29 18:40:00 [multiproc_executor.py:1056] Traceback (most recent call last):
(Worker_TP1 pid=4245) ERROR 11-29 18:40:00 [multiproc_executor.py:1056]   File "/opt/vllm/llama.py", line 543, in forward
(Worker_TP1 pid=4245) ERROR 11-29 18:40:00 [multiproc_executor.py:1056]     raise IndexError("rope table has 512 rows")
(Worker_TP1 pid=4245) ERROR 11-29 18:40:00 [multiproc_executor.py:1056] IndexError: rope table has 512 rows
"""
END = b"vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"


def write_log(path: Path, megabytes: int) -> None:
    """A log of `megabytes` * 10**6 bytes: nine healthy lines and one with the word Error, over and over."""
    block = b"".join((HEALTHY % 3) * 9 + HARMLESS % number for number in range(1000))
    total = megabytes * 1_000_000
    written = 0
    told = False
    with path.open("wb") as out:
        written += out.write(START)
        while written < total - len(END):
            if not told and written > total * 2 // 3:
                written += out.write(CAUSE)
                told = True
            written += out.write(block[: total - written])
        out.write(b"\n" + END)


def read_log(path: str) -> None:
    """The measured part, in its own process: prints seconds, peak KiB, and the verdict's code and line."""
    from gpudiag.logs.facts import read_facts
    from gpudiag.rules.log_verdict import explain_log

    began, used = time.perf_counter(), time.process_time()
    report = explain_log(read_facts([path]), version="0")
    took, cpu_s = time.perf_counter() - began, time.process_time() - used
    culprit = report.verdict.culprits[0] if report.verdict.culprits else None
    print(
        json.dumps(
            {
                "seconds": took,
                "cpu_seconds": cpu_s,
                "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                "code": report.verdict.code,
                "rank": culprit.rank if culprit else None,
                "line": culprit.line if culprit else None,
            }
        )
    )


def timed_grep(path: Path) -> tuple[float, float]:
    """Wall time and processor time of grep in seconds, each the best of three, the file in the page cache."""
    wall, used = [], []
    for _ in range(3):
        began, before = time.perf_counter(), children_s()
        subprocess.run(
            ["grep", "-c", "Traceback", str(path)], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"}
        )
        wall.append(time.perf_counter() - began)
        used.append(children_s() - before)
    return min(wall), min(used)


def children_s() -> float:
    """Processor time of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="where to write the log; without it a temporary file")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read_log(arguments.read)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.keep or Path(folder) / "server.log"
        write_log(path, arguments.megabytes)
        grep_s, grep_cpu_s = timed_grep(path)
        out = subprocess.run([sys.executable, __file__, "--read", str(path)], check=True, capture_output=True, text=True)
        read = json.loads(out.stdout)
        size = path.stat().st_size / 1e6
    print(
        json.dumps(
            {
                "log_mb": round(size),
                "mb_per_s": round(size / read["seconds"]),
                "seconds": round(read["seconds"], 2),
                "cpu_seconds": round(read["cpu_seconds"], 2),
                "grep_seconds": round(grep_s, 2),
                "grep_cpu_seconds": round(grep_cpu_s, 2),
                "times_grep": round(read["seconds"] / grep_s, 1),
                "times_grep_cpu": round(read["cpu_seconds"] / grep_cpu_s, 1),
                "load_average": os.getloadavg()[0],
                "peak_mib": round(read["peak_kib"] / 1024),
                "verdict": {k: read[k] for k in ("code", "rank", "line")},
            }
        )
    )


if __name__ == "__main__":
    main()
