"""A target that py-spy stops is let go, whoever is killed and whenever."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudiag.collect import procfs
from tests.collect.helpers import Program, program, state, states
from tests.support.checkout import ROOT
from tests.support.processes import wait_until

MANY_THREADS = """
lock = threading.Lock()
lock.acquire()
threads = [threading.Thread(target=lock.acquire, daemon=True) for _ in range(40)]
for thread in threads:
    thread.start()
ready()
wait()
"""
LOOK_FOR_EVER = """
from gpudiag.collect.look import LookOptions, look
ready()
while True:
    look([int(sys.argv[1])], LookOptions(stacks=sys.argv[2], locals=False))
"""
KILLS = 4
STOPPED = {"T", "t"}


def traced(pid: int) -> bool:
    return procfs.read_status(pid).tracer_pid != 0


def stopped(pid: int) -> bool:
    return bool(states(pid) & STOPPED)


def running_again(target: Program) -> None:
    """Until nothing holds the target; then it must not be stopped, and stay so."""
    wait_until(lambda: not traced(target.pid) and not stopped(target.pid), "the target let go")
    settled = procfs.run_ns(target.pid, target.pid)
    assert not stopped(target.pid)
    assert settled is not None


@pytest.mark.parametrize("mode", ["pause", "native"])
@pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["the process", "its group"])
def test_killing_gpudiag_leaves_the_target_running(mode: str, kill: Callable[[int, int], None]) -> None:
    with program(MANY_THREADS) as target:
        target.asleep()
        for _ in range(KILLS):
            with program(LOOK_FOR_EVER, str(target.pid), mode, prefix=("setsid",), path=ROOT) as gpudiag:
                wait_until(lambda: stopped(target.pid), "the target stopped by py-spy")
                kill(gpudiag.pid, signal.SIGKILL)
                gpudiag.process.wait()
            running_again(target)


def run_tracer(target: int, *command: str) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-P", "-m", "gpudiag.collect.tracer", str(target), "--", *command]
    return subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def closes(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    status = process.wait(20)
    assert process.stdout is not None
    process.stdout.close()
    return status


def test_a_stop_that_its_command_left_behind_is_undone() -> None:
    with program(MANY_THREADS) as target:
        target.asleep()
        tracer = run_tracer(target.pid, "sh", "-c", f"kill -STOP {target.pid}; echo done; exec sleep 60")
        assert tracer.stdout is not None
        assert select.select([tracer.stdout], [], [], 20)[0]
        wait_until(lambda: state(target.pid) == "T", "the target stopped")
        assert closes(tracer) == 128 + signal.SIGKILL
        assert not stopped(target.pid)


def test_a_stop_from_before_stays() -> None:
    with program(MANY_THREADS) as target:
        target.asleep()
        os.kill(target.pid, signal.SIGSTOP)
        wait_until(lambda: state(target.pid) == "T", "the target stopped")
        assert closes(run_tracer(target.pid, "sleep", "60")) == 128 + signal.SIGKILL
        assert state(target.pid) == "T"


def test_output_and_status_of_the_command_are_passed_on() -> None:
    with program("ready()\nwait()") as target:
        tracer = run_tracer(target.pid, "sh", "-c", "echo said; exit 3")
        assert tracer.stdout is not None
        assert tracer.stdout.read() == b"said\n"
        assert tracer.wait(20) == 3
        assert closes(tracer) == 3


def test_the_command_dies_with_a_tracer_that_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with program("ready()\nwait()") as target:
        tracer = run_tracer(target.pid, "sh", "-c", f"echo $$ > {note}; echo ready; exec sleep 60")
        assert tracer.stdout is not None
        tracer.stdout.readline()
        command = int(note.read_text())
        tracer.kill()
        tracer.wait()
        tracer.stdout.close()
        assert tracer.stdin is not None
        tracer.stdin.close()
        wait_until(lambda: not os.path.exists(f"/proc/{command}") or state(command) == "Z", "the command gone")
