"""The guarded child: hangs end at the deadline, deaths are told, and it dies with its parent."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pytest

from gpudiag.collect.deadline import Guard
from gpudiag.collect.guard_protocol import MemoryReply, MemoryRequest, StateReply, StateRequest
from gpudiag.collect.look import LookOptions, look
from gpudiag.model.process import Syscall
from gpudiag.model.reading import Failed, Ok, Unavailable
from tests.collect.helpers import children, program, state
from tests.support.checkout import ROOT
from tests.support.processes import wait_until

PROGRAMS = Path(__file__).parent / "programs"


def cmdline(pid: int) -> StateRequest:
    return StateRequest(pid=pid, want=("cmdline",))


@dataclass(frozen=True)
class Unreadable:
    """A process with an address that cannot be read; `jam` makes it wait for whoever tries to."""

    server: subprocess.Popen[str]
    pid: int
    address: int

    def request(self) -> MemoryRequest:
        call = Syscall(number=202, name="futex", args=(self.address, 0x80, 2, 0, 0, 0))
        return MemoryRequest(pid=self.pid, syscalls={self.pid: call}, tids=frozenset({self.pid}), watches={})

    def jam(self) -> None:
        stdin = cast("IO[str]", self.server.stdin)
        stdin.write("\n")
        stdin.flush()
        wait_until(lambda: state(self.pid) == "D", "the target waiting for its own memory map")


@pytest.fixture
def unreadable(tmp_path: Path) -> Iterator[Unreadable]:
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs root and /dev/fuse")
    command = [sys.executable, str(PROGRAMS / "unreadable_page.py"), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            stdout = cast("IO[str]", server.stdout)
            assert select.select([stdout], [], [], 30)[0]
            pid, address = json.loads(stdout.readline())
            yield Unreadable(server, pid, address)
        finally:
            server.kill()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}") or state(pid) == "Z", "the target gone")


def test_a_read_that_the_kernel_never_finishes_ends_at_the_deadline_and_the_rest_still_comes(unreadable: Unreadable) -> None:
    with Guard(0.3) as guard:
        guard.ask([cmdline(os.getpid())], StateReply)
        started = time.monotonic()
        (late,) = guard.ask([unreadable.request()], MemoryReply)
        assert isinstance(late, Failed)
        assert "deadline" in late.error
        assert str(unreadable.pid) in late.error
        assert time.monotonic() - started < 3
        started = time.monotonic()
        (again,) = guard.ask([unreadable.request()], MemoryReply)
        assert isinstance(again, Failed)
        assert time.monotonic() - started < 0.05, "what hung once is not tried again"
        for other in guard.ask([cmdline(os.getpid()), cmdline(unreadable.pid)], StateReply):
            assert isinstance(other, StateReply)
            assert isinstance(other.cmdline, Ok)


def test_another_series_asks_again_for_what_hung_in_the_one_before(unreadable: Unreadable) -> None:
    with Guard(0.3) as guard:
        guard.ask([unreadable.request()], MemoryReply)
        guard.renew(0.5)
        started = time.monotonic()
        (late,) = guard.ask([unreadable.request()], MemoryReply)
    assert isinstance(late, Failed)
    assert "limit 0.5 s" in late.error
    assert time.monotonic() - started >= 0.5


def test_a_look_does_not_hang_with_a_target_whose_memory_map_is_locked(unreadable: Unreadable) -> None:
    with Guard(0.2) as guard:
        guard.ask([unreadable.request()], MemoryReply)
        unreadable.jam()
        snapshot = look([unreadable.pid, os.getpid()], LookOptions(deadline_s=0.3))
    process = snapshot.process(unreadable.pid)
    assert process is not None
    assert process.state == "D"
    assert isinstance(process.fds, Ok)
    assert all(t.wchan for t in process.threads)
    for reading in (process.cmdline, process.environ, process.stacks, process.futexes):
        assert isinstance(reading, Failed)
    assert snapshot.took_s < 10


def test_a_child_that_was_stopped_is_replaced() -> None:
    before = children()
    with Guard(1.0) as guard, program("ready()\nwait()") as target:
        (child,) = children() - before - {target.pid}
        guard.ask([cmdline(os.getpid())], StateReply)
        os.kill(child, signal.SIGSTOP)
        late, *others = guard.ask([cmdline(target.pid), cmdline(os.getpid())], StateReply)
        assert isinstance(late, Failed)
        assert [isinstance(reply, StateReply) for reply in others] == [True]
        assert child not in children()


def test_a_child_that_dies_is_told_and_replaced() -> None:
    before = children()
    with Guard(5) as guard:
        (child,) = children() - before
        guard.ask([cmdline(os.getpid())], StateReply)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: state(child) == "Z", "the child dead")
        dead, alive = guard.ask([cmdline(os.getpid()), cmdline(os.getppid())], StateReply)
        assert isinstance(dead, Failed)
        assert "died" in dead.error
        assert isinstance(alive, StateReply)


def test_an_interpreter_that_cannot_be_started_fails_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Guard(1) as guard:
        (reply,) = guard.ask([cmdline(os.getpid())], StateReply)
    assert isinstance(reply, Failed)
    assert "/nowhere/python" in reply.error


def test_many_and_large_answers_come_in_order() -> None:
    with Guard(5) as guard:
        pids = [os.getpid(), os.getppid()] * 50
        replies = guard.ask([StateRequest(pid=pid, want=("maps", "cmdline")) for pid in pids], StateReply)
    own = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
    cmdlines = [list(r.cmdline.value) if isinstance(r, StateReply) and isinstance(r.cmdline, Ok) else None for r in replies]
    assert cmdlines[::2] == [own] * 50
    assert own not in cmdlines[1::2]


def test_a_process_that_is_gone_is_unavailable() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with Guard(5) as guard:
        (reply,) = guard.ask([StateRequest(pid=ended.pid, want=("cmdline", "maps", "io"))], StateReply)
    assert isinstance(reply, StateReply)
    for reading in (reply.cmdline, reply.libraries, reply.io):
        assert isinstance(reading, Unavailable)
        assert "gone" in reading.reason


PARENT = """
from gpudiag.collect.deadline import Guard
from gpudiag.collect.look import LookOptions, look
from gpudiag.collect.guard_protocol import StateReply, StateRequest
guard = Guard(5)
guard.ask([StateRequest(pid=os.getpid(), want=("cmdline",))], StateReply)
ready(*(int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()))
wait()
"""


def test_the_child_dies_with_its_parent() -> None:
    with program(PARENT, path=ROOT) as parent:
        (child,) = parent.said
        os.kill(child, signal.SIGSTOP)
        parent.process.kill()
        parent.process.wait()
        wait_until(lambda: not os.path.exists(f"/proc/{child}") or state(child) == "Z", "the child gone")
