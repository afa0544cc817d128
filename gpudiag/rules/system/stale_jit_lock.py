"""GPD113: a lock that a killed build left behind; the next build waits for it for ever."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.preflight.words import plural


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.jit_locks
    if not isinstance(reading, Ok):
        return unread(reading)
    if _torch_locks_files(facts):
        return passed("this torch locks the open file: one left behind is harmless")
    stale = [lock for lock in reading.value if lock.by_existence and not lock.held and not lock.builders]
    made = (
        CHECK.finding(
            f"A build left {lock.path}: the next process that needs this extension waits for it for ever",
            [
                seen("file-system", f"the lock file exists, {lock.age_s / 60:.0f} minutes old"),
                seen("open-files", "no process on this host has it open and no compiler runs"),
            ],
            (
                f"make sure that no other host that shares this directory builds, then: rm {lock.path}",
                "newer torch locks with flock and needs no such care: update when the engine allows it",
            ),
            culprits=(Culprit(node=f"file:{lock.path}", path=lock.path),),
        )
        for lock in stale
    )
    busy = [lock for lock in reading.value if lock.held or lock.builders]
    return found(made, passed(f"{plural(len(busy), 'build')} running" if busy else "no lock left behind"))


def _torch_locks_files(facts: Facts) -> bool:
    return facts.environment is not None and facts.environment.baton_by_existence is False


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD113",
        name="stale-jit-lock",
        severity="error",
        category="environment",
        asks="did a killed build leave a lock in a cache of compiled extensions?",
    ),
    evaluate=evaluate,
)
