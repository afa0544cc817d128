"""GPD133: a file system that the server writes to is nearly full."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.preflight.words import size

_LOW: Final = 10 << 30
_EMPTY: Final = 1 << 30


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.spaces
    if not isinstance(reading, Ok):
        return unread(reading)
    made = (
        CHECK.finding(
            f"{size(space.free_bytes)} left on the file system of {space.path}",
            [seen("file-system", f"statvfs({space.path}): {size(space.free_bytes)} of {size(space.total_bytes)} free")],
            (
                "make room, or point HF_HOME, TMPDIR and the engine's cache variables elsewhere",
                f"du -xh --max-depth=2 {space.path} | sort -h | tail",
            ),
            subjects=(f"file:{space.path}",),
            severity="error" if space.free_bytes < _EMPTY else "warning",
        )
        for space in reading.value
        if space.free_bytes < _LOW
    )
    least = min((s.free_bytes for s in reading.value), default=0)
    return found(made, passed(f"at least {size(least)} left"))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD133",
        name="disk-nearly-full",
        severity="warning",
        category="host",
        asks="is there room for caches, logs and models?",
    ),
    evaluate=evaluate,
)
