"""The supervisor as a process: it starts the server, waits for what happens, and lets the Supervisor look.

It has a session of its own, so that neither the loss of a terminal nor the end of `gpudiag launch` reaches it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from gpudiag.collect.deadline import Guard
from gpudiag.errors import GpudiagError, UsageError
from gpudiag.launch import server_process
from gpudiag.launch.carry_on import carry_on
from gpudiag.launch.kernel import adopt_orphans
from gpudiag.launch.run_directory import RunDirectory
from gpudiag.launch.signals import Signals
from gpudiag.launch.supervisor import Request, Supervisor
from gpudiag.model.run import LaunchPlan

STARTING_TICK_S: Final = 0.5
SERVING_TICK_S: Final = 1.0


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """How it began: with a server, or with an error for the person who asked."""

    server_pid: int | None = None
    error: str = ""
    help: str = ""


def watch(supervisor: Supervisor, signals: Signals) -> None:
    """Until the server is gone and its end is on disk."""
    due = time.monotonic()
    while not supervisor.over:
        wait_s = max(0.0, due - time.monotonic())
        poll = select.poll()
        poll.register(signals.fd, select.POLLIN)
        poll.register(supervisor.taker.fd, select.POLLIN)
        by_fd = dict(supervisor.tree.pidfds())
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        ready = poll.poll(wait_s * 1000)
        for number in signals.taken():
            supervisor.asked_to_end(number)
        ended = [by_fd[fd] for fd, _ in ready if fd in by_fd and supervisor.tree.ended(by_fd[fd])]
        for tracked in ended:
            supervisor.died(tracked)
        told = supervisor.desk.step()
        if told is not None:
            supervisor.told_by(told)
        if ended or told is not None or time.monotonic() >= due:
            with carry_on():
                supervisor.tick()
            fast = supervisor.clock.current != "ready" or supervisor.ending.begun or supervisor.root.ended
            due = time.monotonic() + (STARTING_TICK_S if fast else SERVING_TICK_S)


def main(arguments: list[str]) -> None:
    """Start and watch the server of the request on stdin. What is written to descriptor `arguments[0]` says how it began."""
    tell = int(arguments[0])
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    run = RunDirectory(Path(request.plan.run_directory))
    adopt_orphans()
    signals = Signals()
    with open(run.supervisor_log, "ab") as errors, Guard(3.0) as guard:
        try:
            child = _start(request.plan, run)
        except GpudiagError as error:
            os.write(tell, msgspec.json.encode(Begun(error=error.message, help=error.help)))
            return
        supervisor = Supervisor(request, child, guard, errors)
        with carry_on():
            supervisor.write_progress()
        # Whoever asked may have gone with its terminal; the server is watched all the same.
        with carry_on():
            os.write(tell, msgspec.json.encode(Begun(server_pid=child.pid)))
        os.close(tell)
        try:
            watch(supervisor, signals)
        finally:
            supervisor.close()


def _start(plan: LaunchPlan, run: RunDirectory) -> subprocess.Popen[bytes]:
    """The server, once it is written down: without its manifest nobody would find it again."""
    child = None
    try:
        run.write_manifest(server_process.manifest_of(plan))
        started_at = time.time()
        child = server_process.start(plan, run.server_log)
        run.write_manifest(server_process.manifest_of(plan, started_at=started_at, server_pid=child.pid))
    except OSError as error:
        if child is not None:
            child.kill()
            child.wait()
        raise UsageError(
            f"cannot write in the run directory {run.path}: {error.strerror}",
            help=f"df -h {run.path}, or another place: --record DIR",
        ) from error
    return child
