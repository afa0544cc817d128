"""lock_uses against real threads that really block, in every interpreter at hand."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from gpudiag.collect import lock_uses as module
from gpudiag.collect.file_polls import file_polls
from gpudiag.collect.lock_uses import lock_uses
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.python_target import UnsupportedPythonError
from gpudiag.model.stack import LockUse, PyStack
from tests.collect.targets import DEADLINE_S, INTERPRETERS, PROGRAMS, Target, futex_sleepers, running, wait_until

VERSIONS = sorted(INTERPRETERS)


class Seen(NamedTuple):
    """A LockUse with names for addresses."""

    thread: str
    held: bool
    lock: str
    expression: str
    kind: str = "lock"


def look(target: Target, stacks: tuple[PyStack, ...] | None = None) -> tuple[tuple[PyStack, ...], tuple[LockUse, ...]]:
    stacks = target.stacks() if stacks is None else stacks
    with TargetMemory(target.pid) as memory:
        return stacks, lock_uses(target.pid, target.version_text, stacks, memory)


def seen(target: Target) -> set[Seen]:
    names = {address: name for name, address in target.said.items() if name != "children"}
    stacks, uses = look(target)
    threads = {stack.tid: stack.name or "" for stack in stacks}
    return {Seen(threads[u.tid], u.held, names.get(u.lock, hex(u.lock)), u.expression, u.kind) for u in uses}


def settles(target: Target, expected: set[Seen]) -> None:
    """The threads need a moment to get to where they block: look until they have."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := seen(target)) != expected and time.monotonic() < deadline:
        pass
    assert found == expected


def waits(thread: str, lock: str, expression: str, kind: str = "lock") -> Seen:
    return Seen(thread, False, lock, expression, kind)


def holds(thread: str, lock: str, expression: str, kind: str = "lock") -> Seen:
    return Seen(thread, True, lock, expression, kind)


def stuck(*threads: str, expression: str = "never") -> set[Seen]:
    return {waits(thread, "never", expression) for thread in threads}


SCENARIOS: dict[str, set[Seen]] = {
    "ab_ba": {
        holds("forward", "first", "self._lock"),
        waits("forward", "second", "self._lock"),
        holds("backward", "second", "self._lock"),
        waits("backward", "first", "self._lock"),
    },
    "two_pairs": {
        holds("one forward", "lock 0", "self._lock"),
        waits("one forward", "lock 1", "self._lock"),
        holds("one backward", "lock 1", "self._lock"),
        waits("one backward", "lock 0", "self._lock"),
        holds("two forward", "lock 2", "self._lock"),
        waits("two forward", "lock 3", "self._lock"),
        holds("two backward", "lock 3", "self._lock"),
        waits("two backward", "lock 2", "self._lock"),
    },
    "rlock_owner": {
        holds("owner", "private", "self.__private", "rlock"),
        waits("waiter", "private", "self.__private", "rlock"),
    }
    | stuck("owner"),
    "several_items": {
        holds("first", "zero", "LOCKS[0]"),
        holds("first", "one", "LOCKS[1]"),
        holds("second", "global", "GLOBAL"),
        waits("second", "zero", "LOCKS[0]"),
        holds("third", "table", "TABLE['a']"),
        holds("third", "lock", "lock"),
        waits("third", "one", "LOCKS[1]"),
    }
    | stuck("first"),
    "acquire_release": {holds("holds", "zero", "LOCKS[0]"), holds("polite", "lock", "lock")}
    | stuck("released", "holds", "done", "polite"),
    "condition_wait": {
        holds("holds", "condition", "condition", "condition"),
        waits("wants", "condition", "condition", "condition"),
    }
    | stuck("holds"),
    "notified": {
        holds("holds", "condition", "condition", "condition"),
        waits("waits", "condition", "self", "condition"),
    }
    | stuck("holds"),
    "semaphore": {holds("holds", "gate", "gate", "semaphore"), waits("wants", "gate", "gate", "semaphore")} | stuck("holds"),
    "module_global": {
        holds("holds", "global", "GLOBAL"),
        waits("wants", "global", "GLOBAL"),
        waits("shadowed", "global", "lock"),
    }
    | stuck("holds"),
    # Where nothing tells the module from the script, no lock is named.
    "loaded_twice": {
        waits("script", "of the script", "GLOBAL"),
        waits("module", "of the module", "GLOBAL"),
    },
    "slots": {holds("holds", "guard", "self.guard"), waits("wants", "guard", "self.guard")} | stuck("holds"),
    "nested_attributes": {
        holds("holds", "first", "self.pool.locks[0]"),
        holds("holds", "last", "self.pool.locks[-1]"),
    }
    | stuck("holds"),
    "closures": {holds("holds", "inner", "inner_lock"), waits("wants", "inner", "inner_lock")} | stuck("holds"),
    "pool": {holds("worker_0", "global", "GLOBAL"), waits("worker_1", "global", "GLOBAL")} | stuck("worker_0"),
    "processes": {holds("holds", "shared", "shared"), waits("wants", "shared", "shared")} | stuck("holds"),
    "wrappers": {
        holds("first", "mutex", "self.exclusive()"),
        holds("first", "guard", "self.guard"),
        holds("second", "global", "shared(LOCKS[0], 'x')"),
        holds("second", "zero", "shared(LOCKS[0], 'x')"),
        waits("wants", "mutex", "self._mutex"),
        waits("wants guard", "guard", "self._inner"),
    }
    | stuck("first", "second"),
    "busy": {holds("computes", "global", "GLOBAL")},
    "itself": {holds("again", "global", "GLOBAL"), waits("again", "global", "GLOBAL")},
}


def program(scenario: str) -> str:
    return "wrapped_locks.py" if scenario in ("wrappers", "processes") else "locks.py"


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
@pytest.mark.parametrize("version", VERSIONS)
def test_who_waits_for_which_lock_and_who_holds_it(version: str, scenario: str) -> None:
    with running(version, program(scenario), scenario) as target:
        settles(target, SCENARIOS[scenario])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_logging_handler_is_known_by_its_lock(version: str) -> None:
    with running(version, "locks.py", "logs") as target:
        by_thread = "self.lock" if version >= "3.13" else "self"
        settles(
            target,
            {holds("holds", "handler", by_thread, "rlock"), waits("wants", "handler", by_thread, "rlock")} | stuck("holds"),
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lock_says_whether_it_is_taken_where_waiters_sleep_and_who_owns_it(version: str) -> None:
    with running(version, "locks.py", "rlock_owner") as target:
        settles(target, SCENARIOS["rlock_owner"])
        stacks, uses = look(target)
        by_name = {stack.name: stack for stack in stacks}
        waiter = next(use for use in uses if use.tid == by_name["waiter"].tid)
        assert waiter.owner_ident == by_name["owner"].ident
        assert waiter.locked is True
        assert waiter.word == (asleep_on(target.pid, waiter.tid) if target.version < (3, 14) else None)
        assert by_name["waiter"].frames[waiter.frame].function == "Account.wait_private"


def asleep_on(pid: int, tid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()[1], 16)


@pytest.mark.parametrize("scenario", ["ab_ba", "rlock_owner", "condition_wait", "semaphore", "wrappers"])
def test_the_same_without_the_system_calls_of_the_threads(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(VERSIONS[-1], program(scenario), scenario) as target:
        settles(target, SCENARIOS[scenario])
        monkeypatch.setattr(module, "_FUTEX", None)
        assert seen(target) == SCENARIOS[scenario]


def test_of_several_taken_locks_in_one_line_none_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(VERSIONS[-1], "locks.py", "several_items") as target:
        settles(target, SCENARIOS["several_items"])
        monkeypatch.setattr(module, "_FUTEX", None)
        found = seen(target)
        assert found < SCENARIOS["several_items"]
        assert {use.thread for use in found if not use.held} == {"first", "third"}


def test_two_instances_of_the_same_code_have_locks_of_their_own() -> None:
    with running(VERSIONS[-1], "locks.py", "two_pairs") as target:
        settles(target, SCENARIOS["two_pairs"])
        _, uses = look(target)
        held = [use.lock for use in uses if use.held]
        assert len(held) == len(set(held)) == 4
        assert {use.expression for use in uses} == {"self._lock"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lock_of_several_processes_has_one_name_in_all_of_them(version: str) -> None:
    with running(version, "wrapped_locks.py", "across_processes") as target:
        settles(target, {waits("wants", "across", "across")})
        (child,) = (replace(target, pid=pid) for pid in target.said["children"])
        settles(child, {holds("MainThread", "across", "across")} | stuck("MainThread"))
        wanted = [use.shared for use in look(target)[1]]
        held = [use.shared for use in look(child)[1] if use.held]
        assert wanted == held != [None]


@pytest.mark.parametrize("version", VERSIONS)
def test_idle_workers_that_take_turns_at_a_queue_wait_for_no_lock(version: str) -> None:
    with running(version, "wrapped_locks.py", "idle_workers") as target:
        first, second = (replace(target, pid=pid) for pid in target.said["children"])
        reads = {holds("MainThread", "rlock", "self._rlock")}
        wait_until(lambda: seen(first) | seen(second) == reads, "a worker that reads the queue")
        wait_until(lambda: futex_sleepers(first.pid) + futex_sleepers(second.pid) == 1, "one worker that waits its turn")
        assert seen(first) | seen(second) == reads
        assert not (seen(first) and seen(second))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_semaphore_that_nobody_holds_is_a_signal(version: str) -> None:
    with running(version, "locks.py", "signals") as target:
        wait_until(lambda: sum("Semaphore.acquire" in functions(s) for s in target.stacks()) == 2, "two threads that listen")
        assert seen(target) == set()


def functions(stack: PyStack) -> set[str]:
    return {frame.function for frame in stack.frames}


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[tuple[Target, Path]]:
    """A blocked target whose source file the test may change."""
    copy = tmp_path / "locks.py"
    shutil.copy(PROGRAMS / "locks.py", copy)
    with running(VERSIONS[-1], copy, "ab_ba") as target:
        settles(target, SCENARIOS["ab_ba"])
        yield target, copy


@pytest.mark.timeout(30)
def test_a_source_that_became_a_fifo_gives_nothing(copied: tuple[Target, Path]) -> None:
    target, source = copied
    source.unlink()
    os.mkfifo(source)
    assert seen(target) == set()


def test_a_source_that_is_gone_gives_nothing(copied: tuple[Target, Path]) -> None:
    target, source = copied
    source.unlink()
    assert seen(target) == set()


def test_a_source_that_changed_gives_nothing(copied: tuple[Target, Path]) -> None:
    target, source = copied
    later = time.time() + 60
    os.utime(source, (later, later))
    assert seen(target) == set()


@pytest.mark.parametrize("address", [0, 8, -1, 1 << 46, (1 << 64) - 1])
def test_stacks_with_nonsense_for_addresses_give_nothing(address: int) -> None:
    with running(VERSIONS[-1], "locks.py", "ab_ba") as target:
        settles(target, SCENARIOS["ab_ba"])
        stacks = tuple(
            msgspec.structs.replace(
                stack,
                frames=tuple(msgspec.structs.replace(f, locals=dict.fromkeys(f.locals, address)) for f in stack.frames),
            )
            for stack in target.stacks()
        )
        assert look(target, stacks)[1] == ()


@pytest.mark.parametrize("line", [-1, 0, 1, 10**9])
def test_stacks_with_nonsense_for_lines_give_nothing(line: int) -> None:
    with running(VERSIONS[-1], "locks.py", "ab_ba") as target:
        settles(target, SCENARIOS["ab_ba"])
        stacks = tuple(
            msgspec.structs.replace(stack, frames=tuple(msgspec.structs.replace(f, line=line) for f in stack.frames))
            for stack in target.stacks()
        )
        assert look(target, stacks)[1] == ()


def test_a_python_that_cannot_be_read_is_said_so() -> None:
    with TargetMemory(os.getpid()) as memory:
        for version in ("3.10.2", "3.15", "2.7", None, "no version"):
            with pytest.raises(UnsupportedPythonError):
                lock_uses(os.getpid(), version, (), memory)


def test_a_target_that_is_gone_is_an_error() -> None:
    with running(VERSIONS[-1], "locks.py", "ab_ba") as target:
        settles(target, SCENARIOS["ab_ba"])
        stacks = target.stacks()
        with TargetMemory(target.pid) as memory:
            os.kill(target.pid, signal.SIGKILL)
            os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT)
            for read in (lock_uses, file_polls):
                with pytest.raises(OSError) as error:
                    read(target.pid, target.version_text, stacks, memory)
                assert error.value.errno == errno.ESRCH


@pytest.mark.parametrize("version", VERSIONS)
def test_sixty_blocked_threads_cost_less_than_60_ms(version: str) -> None:
    with running(version, "locks.py", "crowd") as target:
        wait_until(lambda: len(look(target)[1]) == 120, "60 threads that hold a lock and wait for another")
        stacks = target.stacks()
        took = []
        for _ in range(3):
            before = time.process_time()
            with TargetMemory(target.pid) as memory:
                uses = lock_uses(target.pid, target.version_text, stacks, memory)
                file_polls(target.pid, target.version_text, stacks, memory)
            took.append(time.process_time() - before)
        assert len(uses) == 120
        assert min(took) < 0.06
