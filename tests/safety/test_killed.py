"""gpudiag killed at any moment: the server runs on, nothing of it is left stopped, and nothing of gpudiag is left at all.

`python -m tests.safety.test_killed KILLS [SCENARIO [ARGUMENT...]]` kills so many in each way, and counts what came of it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpudiag.collect import procfs
from gpudiag.demo.procstate import session_members
from gpudiag.demo.run import Running, start
from gpudiag.model.process import GONE, STOPPED
from tests.cli.programs import command, environment
from tests.support.processes import DEADLINE_S, wait_until

KILLS = 5
GONE_WITHIN_S = 1.0
"""How long the long run lets it take; the test waits longer: on a busy machine a second is no measure of gpudiag."""
LET_GO_S = 5.0
"""A tracer lets go while it dies: harm is what lasts."""
MARK = "GPUDIAG_TEST_RUN"
WAYS: dict[str, tuple[str, ...]] = {"default": (), "pause": ("--pause",), "native": ("--native",)}
QUICK = ("--interval", "0.1")
"""Looking is what may harm; a second of waiting between two looks is not."""


class HarmedError(AssertionError):
    """A target was left in another state than it was in before."""


def offspring(mark: str) -> list[int]:
    """Processes that still run of those started with this mark in their environment, however deep they are."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != os.getpid():
            try:
                variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                if wanted in variables and procfs.read_stat(int(entry)).state not in GONE:
                    found.append(int(entry))
            except OSError:
                continue
    return found


def held(pids: Sequence[int]) -> list[str]:
    """What of these processes is stopped or traced."""
    found = []
    for pid in pids:
        tracer = procfs.read_status(pid).tracer_pid
        states = {tid: procfs.read_stat(int(tid)).state for tid in os.listdir(f"/proc/{pid}/task")}
        found += [f"thread {tid} of process {pid} is {state}" for tid, state in states.items() if state in STOPPED]
        found += [f"process {pid} is traced by {tracer}"] if tracer else []
    return found


def identities(pids: Sequence[int]) -> list[tuple[int, int]]:
    return [(pid, procfs.read_stat(pid).start_ticks) for pid in pids]


def attach(root: int, arguments: Sequence[str], mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command("attach", str(root), *arguments),
        env=environment(**{MARK: mark}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def duration_s(root: int, arguments: Sequence[str]) -> float:
    began = time.monotonic()
    with attach(root, arguments, uuid.uuid4().hex) as process:
        assert process.wait(60) in (0, 1)
    return time.monotonic() - began


def kill_after(moment_s: float, root: int, arguments: Sequence[str], number: int = signal.SIGKILL) -> tuple[str, bool]:
    """Start an attach and end it at this moment. Returns its mark, and whether it had not ended by itself."""
    mark = uuid.uuid4().hex
    with attach(root, arguments, mark) as process:
        try:
            process.wait(moment_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            return mark, True
    return mark, False


def unharmed(server: Running, before: Sequence[tuple[int, int]], mark: str, within_s: float = DEADLINE_S) -> None:
    """Until nothing of the killed run is left; then its targets must be the processes that they were, and run."""
    wait_until(lambda: not offspring(mark), "the end of what gpudiag started", within_s)
    pids = [pid for pid, _ in before]
    # py-spy is a zombie by its first thread while the one that traces has yet to end.
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not held(pids), "the targets let go", LET_GO_S)
    if identities(pids) != before or held(pids):
        raise HarmedError(f"{held(pids)}, {identities(pids)} were {before}")
    if server.expected.name == "idle":
        assert server.ask(), "the server answers"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with start("idle", ranks=3, extra_threads=5) as running:
        running.wait_until_stuck()
        yield running


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_any_moment(server: Running, way: str) -> None:
    before = identities(session_members(server.root_pid))
    arguments = (*WAYS[way], *QUICK)
    within_s = duration_s(server.root_pid, arguments)
    caught = 0
    for number in (*[signal.SIGKILL] * KILLS, signal.SIGTERM, signal.SIGINT):
        moment_s = random.SystemRandom().uniform(0, within_s)
        mark, alive = kill_after(moment_s, server.root_pid, arguments, number)
        caught += alive
        unharmed(server, before, mark)
    assert caught, "every run had ended before it was killed"


def test_a_target_that_was_left_stopped_would_be_noticed(server: Running) -> None:
    before = identities(session_members(server.root_pid))
    victim = server.rank_pids[0]
    os.kill(victim, signal.SIGSTOP)
    try:
        wait_until(lambda: bool(held([victim])), "the rank stopped")
        with pytest.raises(HarmedError, match=f"of process {victim} is T"):
            unharmed(server, before, uuid.uuid4().hex)
    finally:
        os.kill(victim, signal.SIGCONT)
    wait_until(lambda: not held([victim]), "the rank running")


def long_run(kills: int, scenario: str, further: Sequence[str]) -> None:
    harmed = late = caught = 0
    with start(scenario, ranks=3, extra_threads=5) as server:
        server.wait_until_stuck()
        before = identities(session_members(server.root_pid))
        for way, flags in WAYS.items():
            arguments = (*flags, *further)
            within_s = duration_s(server.root_pid, arguments)
            wanted = caught + kills
            while caught < wanted:
                moment_s = random.SystemRandom().uniform(0, within_s)
                mark, alive = kill_after(moment_s, server.root_pid, arguments)
                if not alive:
                    # This run was over sooner than the one that was timed, so later moments need not be tried.
                    within_s = moment_s
                    continue
                caught += 1
                try:
                    unharmed(server, before, mark, GONE_WITHIN_S)
                except HarmedError as error:
                    harmed += 1
                    print(f"{way} at {moment_s:.3f} s: harmed: {error}", flush=True)
                except AssertionError as error:
                    late += 1
                    print(f"{way} at {moment_s:.3f} s: {error}", offspring(mark), flush=True)
            print(f"{scenario} {way} ({within_s:.2f} s): {caught} killed so far, {harmed} harmed, {late} late", flush=True)


if __name__ == "__main__":
    long_run(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "rank-missing", sys.argv[3:])
