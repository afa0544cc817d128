"""What a second look reads again, and what it takes from the first because nobody ran meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpudiag.collect.deadline import Guard
from gpudiag.collect.guard_protocol import MemoryRequest, Reply, Request
from gpudiag.collect.look import observe
from gpudiag.collect.one_look import OneLook
from gpudiag.collect.pyspy import Dumps
from gpudiag.collect.reuse import has_locals
from gpudiag.model.process import Process
from gpudiag.model.reading import NOT_ASKED, Failed, Ok
from gpudiag.model.snapshot import Snapshot
from tests.collect.helpers import SERVER, blocked, one, program, state
from tests.support.processes import wait_until


def dumps_counted(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The pids of every run of py-spy from now on."""
    runs: list[list[int]] = []
    real = sys.modules[OneLook.__module__].__dict__["dump_stacks"]

    def counted(pids: list[int], **options: object) -> Dumps:
        if pids:
            runs.append(list(pids))
        dumps = real(pids, **options)
        assert isinstance(dumps, Dumps)
        return dumps

    monkeypatch.setattr(sys.modules[OneLook.__module__], "dump_stacks", counted)
    return runs


def test_threads_that_did_not_run_are_not_dumped_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = dumps_counted(monkeypatch)
    with program(SERVER) as target:
        blocked(target)
        observation = observe([target.pid], interval_s=0.05)
    assert runs == [[target.pid]]
    first, last = (one(s, target.pid) for s in observation.snapshots)
    assert isinstance(first.stacks, Ok)
    assert isinstance(last.stacks, Ok)
    assert last.stacks.value == first.stacks.value
    assert last.stacks.at > first.stacks.at
    assert isinstance(last.lock_uses, Ok)
    assert last.lock_uses.value
    assert first.lock_uses == last.lock_uses
    assert {t.tid: t.run_ns for t in first.threads} == {t.tid: t.run_ns for t in last.threads}
    assert (last.libraries, last.environ) == (first.libraries, first.environ)


def memory_read_with_stacks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each memory request from now on, whether it came with stacks."""
    asked: list[bool] = []
    real = OneLook._memory_request

    def noted(self: OneLook, process: Process) -> MemoryRequest:
        request = real(self, process)
        asked.append(request.stacks is not None)
        return request

    monkeypatch.setattr(OneLook, "_memory_request", noted)
    return asked


def test_locks_of_a_process_that_did_not_run_are_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = memory_read_with_stacks(monkeypatch)
    with program(SERVER) as target:
        blocked(target)
        observation = observe([target.pid], interval_s=0.05)
    # The child of the server is no Python.
    assert asked == [True, False, False, False]
    first, last = (one(s, target.pid).lock_uses for s in observation.snapshots)
    assert isinstance(last, Ok)
    assert sorted(use.held for use in last.value) == [False, True]
    assert last == first


def test_the_locks_of_a_process_that_runs_are_rehearsed_between_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the last look the source of its frames is parsed; what a rehearsal answers is not used."""
    asked: list[MemoryRequest] = []
    real = Guard.ask

    def noted(self: Guard, requests: Sequence[Request], kind: type[Reply]) -> list[Reply | Failed]:
        asked.extend(r for r in requests if isinstance(r, MemoryRequest))
        return real(self, requests, kind)

    monkeypatch.setattr(Guard, "ask", noted)
    code = """
    import time
    def turn(lock):
        with lock:
            while True:
                time.sleep(0.001)
    ready()
    turn(threading.Lock())
    """
    with program(code) as target:
        observation = observe([target.pid], interval_s=2.0)
    assert [(r.stacks is not None, has_locals(r.stacks or ())) for r in asked] == [(False, False), (True, False), (True, True)]
    first, last = (one(s, target.pid).lock_uses for s in observation.snapshots)
    assert first == NOT_ASKED
    assert isinstance(last, Ok)
    assert [use.held for use in last.value] == [True]


def test_locks_that_processes_share_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may let go of one while nobody here runs."""
    asked = memory_read_with_stacks(monkeypatch)
    code = """
    import multiprocessing
    lock = multiprocessing.get_context("fork").Lock()
    lock.acquire()
    ready()
    with lock:
        pass
    """
    with program(code) as target:
        wait_until(lambda: "futex" in Path(f"/proc/{target.pid}/wchan").read_text() or state(target.pid) == "S", "the lock")
        last = one(observe([target.pid], interval_s=0.05).last, target.pid).lock_uses
    assert isinstance(last, Ok)
    assert [use.shared is not None for use in last.value] == [True]
    assert asked[-1]


def test_a_thread_that_ran_is_dumped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = dumps_counted(monkeypatch)
    code = """
    def serve():
        count = 0
        while sys.stdin.readline():
            count += 1
            print("again", flush=True)
    ready()
    serve()
    """
    with program(code) as target:
        target.asleep()
        real = OneLook.take

        def take(self: OneLook) -> Snapshot:
            snapshot = real(self)
            if target.process.stdin is not None and target.process.stdout is not None:
                target.process.stdin.write("go\n")
                target.process.stdin.flush()
                target.process.stdout.readline()
                target.asleep()
            return snapshot

        monkeypatch.setattr(OneLook, "take", take)
        observation = observe([target.pid], interval_s=0.05)
    assert runs == [[target.pid], [target.pid]]
    stacks = one(observation.last, target.pid).stacks
    assert isinstance(stacks, Ok)
    assert any(frame.locals for stack in stacks.value for frame in stack.frames)
