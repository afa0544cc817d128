"""lock_uses against real threads that really block, in every interpreter at hand."""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest

from gpudiag.collect.lock_uses import lock_uses
from gpudiag.collect.memory import TargetMemory
from gpudiag.model.stack import LockUse, PyStack
from tests.collect.targets import DEADLINE_S, INTERPRETERS, Target, running

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
    names = {address: name for name, address in target.said.items()}
    stacks, uses = look(target)
    threads = {stack.tid: stack.name or "" for stack in stacks}
    return {Seen(threads[u.tid], u.held, names.get(u.lock, hex(u.lock)), u.expression, u.kind) for u in uses}


def settles(target: Target, expected: set[Seen]) -> None:
    """The threads need a moment to get to where they block: look until they have."""
    deadline = time.monotonic() + DEADLINE_S / 3
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
    "slots": {holds("holds", "guard", "self.guard"), waits("wants", "guard", "self.guard")} | stuck("holds"),
    "nested_attributes": {
        holds("holds", "first", "self.pool.locks[0]"),
        holds("holds", "last", "self.pool.locks[-1]"),
    }
    | stuck("holds"),
    "closures": {holds("holds", "inner", "inner_lock"), waits("wants", "inner", "inner_lock")} | stuck("holds"),
    "pool": {holds("worker_0", "global", "GLOBAL"), waits("worker_1", "global", "GLOBAL")} | stuck("worker_0"),
    "processes": {holds("holds", "shared", "shared"), waits("wants", "shared", "shared")} | stuck("holds"),
    "busy": {holds("computes", "global", "GLOBAL")},
    "itself": {holds("again", "global", "GLOBAL"), waits("again", "global", "GLOBAL")},
}


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
@pytest.mark.parametrize("version", VERSIONS)
def test_who_waits_for_which_lock_and_who_holds_it(version: str, scenario: str) -> None:
    with running(version, "locks.py", scenario) as target:
        settles(target, SCENARIOS[scenario])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_logging_handler_is_known_by_its_lock(version: str) -> None:
    with running(version, "locks.py", "logs") as target:
        by_thread = "self.lock" if version >= "3.13" else "self"
        settles(
            target,
            {holds("holds", "handler", by_thread, "rlock"), waits("wants", "handler", by_thread, "rlock")} | stuck("holds"),
        )
