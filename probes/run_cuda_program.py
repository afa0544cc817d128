"""Compiles a CUDA test program and runs it once for each set of GPUs, each time in a process that can be killed.

needs: cuda (nvcc and the GPUs; any interpreter will do)
timeout: 120 s for the compiler and --limit for each run
writes: a temporary directory, removed at the end

Arguments: --limit SECONDS --capability 120 SOURCE GPUS..., where GPUS is '0' or '0,1'. Stops at the first run that hangs: what
it left on the GPUs would make the others hang too. Answer: "runs": [{gpus, outcome, detail, took_s}].
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

SCHEMA = "gpudiag.probe/1"
PRCTL = ctypes.CDLL(None).prctl
PR_SET_PDEATHSIG = 1
COMPILER_LIMIT_S = 120
OUTCOMES = {0: "passed", 2: "wrong-data", 3: "failed", 4: "denied"}
"""Exit statuses of the programs: kernels/cuda/check.cuh."""


def compile_program(source, capability, place):
    """The program, or why there is none."""
    program = os.path.join(place, os.path.splitext(os.path.basename(source))[0])
    target = f"arch=compute_{capability},code=sm_{capability}"
    command = [os.environ.get("NVCC", "nvcc"), "-O1", "-gencode", target, "-o", program, source]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=COMPILER_LIMIT_S, check=False)
    except OSError as error:
        return None, f"nvcc does not run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"nvcc did not end within {COMPILER_LIMIT_S} s"
    if done.returncode != 0:
        return None, last_line(done.stderr or done.stdout)
    return program, ""


def die_with_parent():
    """Runs in a child before its program: the kernel ends it when this probe is killed, whatever session it is in."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(program, gpus, limit):
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [program, *gpus],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509  a probe has one thread
        )
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        said.seek(0)
        detail = last_line(said.read(1 << 16).decode("utf-8", "replace"))
    took_s = round(time.monotonic() - started, 3)
    if status is None:
        # Not waited for: a process that stands in the driver may not even die.
        return {"gpus": gpus, "outcome": "hung", "detail": f"not done after {limit:g} s", "took_s": took_s}
    if status < 0:
        detail = f"killed by {signal.Signals(-status).name}"
    return {"gpus": gpus, "outcome": OUTCOMES.get(status, "failed"), "detail": detail, "took_s": took_s}


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1][:500] if lines else ""


def runs(arguments):
    with tempfile.TemporaryDirectory(prefix="gpudiag-") as place:
        program, why = compile_program(arguments.source, arguments.capability, place)
        found = []
        for gpus in (names.split(",") for names in arguments.gpus):
            if program is None:
                found.append({"gpus": gpus, "outcome": "not-built", "detail": why, "took_s": 0.0})
                continue
            found.append(run(program, gpus, arguments.limit))
            if found[-1]["outcome"] == "hung":
                break
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--capability", required=True)
    parser.add_argument("source")
    parser.add_argument("gpus", nargs="+")
    found = runs(parser.parse_args())
    sys.stdout.write(json.dumps({"schema": SCHEMA, "probe": "run_cuda_program", "ok": True, "runs": found}) + "\n")


if __name__ == "__main__":
    main()
