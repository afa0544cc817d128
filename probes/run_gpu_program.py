"""Runs a test program once for each set of GPUs, each time in a process that can be killed: CUDA, compiled first, or Python.

needs: cuda (the GPUs, and nvcc for CUDA; Python's programs need what they import)
timeout: 120 s for the compiler and --limit for each run
writes: a temporary directory, removed at the end

Arguments: --limit SECONDS --capability 120 [--last WORD] SOURCE GPUS..., where GPUS are UUIDs: 'GPU-a' or 'GPU-a,GPU-b'. The
program sees these alone and gets their numbers, 0 and up, as arguments, then WORD. Stops at the first run that hangs: what it
left on the GPUs would make the others hang too. Answer: "runs": [{gpus, outcome, detail, took_s}].
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
PR_SET_CHILD_SUBREAPER = 36
REAP_S = 2.0
COMPILER_LIMIT_S = 120
OUTCOMES = {0: "passed", 2: "wrong-data", 3: "failed", 4: "denied", 5: "not-built"}
"""Exit statuses of the programs: kernels/cuda/check.cuh."""


def command_of(source, capability, place):
    """How to run a program, or why it cannot be."""
    if not os.access(source, os.R_OK):
        return None, f"{source} may not be read by the user of this interpreter"
    if source.endswith(".py"):
        return [sys.executable, "-B", source], ""
    program, why = compile_program(source, capability, place)
    return program and [program], why


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
        return None, last_lines(done.stderr or done.stdout, 1)
    return program, ""


def die_with_parent():
    """Runs in a child before its program: the kernel ends it when this probe is killed, whatever session it is in."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(command, gpus, last, limit, place):
    # UUIDs: the order in which CUDA counts GPUs need not be that of anybody else. Caches: what is compiled is part of the test.
    environment = {"NCCL_DEBUG": "WARN", **os.environ, "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    environment["TRITON_CACHE_DIR"] = os.path.join(place, "triton")
    started = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [*command, *map(str, range(len(gpus))), *last],
            env=environment,
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
        reap(REAP_S if status is None else 0.1)
        said.seek(0)
        detail = last_lines(said.read(1 << 16).decode("utf-8", "replace"), 1 if status == 0 else 3)
    took_s = round(time.monotonic() - started, 3)
    if status is None:
        said_last = f": {detail}" if detail else ""
        return {"gpus": gpus, "outcome": "hung", "detail": f"not done after {limit:g} s{said_last}", "took_s": took_s}
    if status < 0:
        detail = f"killed by {signal.Signals(-status).name}"
    return {"gpus": gpus, "outcome": OUTCOMES.get(status, "failed"), "detail": detail, "took_s": took_s}


def reap(limit):
    """Take what was killed off the process table, the program's own children too: a container's first process may not.

    Not for ever: a process that stands in the driver may not even die.
    """
    end = time.monotonic() + limit
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)


def last_lines(text, count):
    return "\n".join(line[:500] for line in text.strip().splitlines()[-count:])


def runs(arguments):
    with tempfile.TemporaryDirectory(prefix="gpudiag-") as place:
        command, why = command_of(arguments.source, arguments.capability, place)
        found = []
        for gpus in (names.split(",") for names in arguments.gpus):
            if command is None:
                found.append({"gpus": gpus, "outcome": "not-built", "detail": why, "took_s": 0.0})
                continue
            found.append(run(command, gpus, arguments.last, arguments.limit, place))
            if found[-1]["outcome"] == "hung":
                break
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--capability", required=True)
    parser.add_argument("--last", action="append", default=[])
    parser.add_argument("source")
    parser.add_argument("gpus", nargs="+")
    PRCTL(PR_SET_CHILD_SUBREAPER, 1)
    found = runs(parser.parse_args())
    sys.stdout.write(json.dumps({"schema": SCHEMA, "probe": "run_gpu_program", "ok": True, "runs": found}) + "\n")


if __name__ == "__main__":
    main()
