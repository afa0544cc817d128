"""GPD108: /dev/shm is too small for the queues and NCCL segments of the workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, SharedMemory
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.preflight.words import listing, size

_GIB: Final = 1 << 30
_LEAST: Final = _GIB
"""Docker's default is 64 MiB; NCCL alone takes some tens of MiB a pair of ranks."""
_MANY_RANKS: Final = 8
_FOR_MANY: Final = 8 * _GIB
_STEPS: Final = (
    "docker run --ipc=host ..., or --shm-size=32g; in Kubernetes an emptyDir with medium: Memory at /dev/shm",
    "on the host itself: mount -o remount,size=32g /dev/shm",
)


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.shared_memory
    if not isinstance(reading, Ok):
        return unread(reading)
    memory = reading.value
    ranks = max(facts.asked.tp, len(facts.system.gpus.value.gpus) if isinstance(facts.system.gpus, Ok) else 0)
    seen_size = f"{size(memory.space.total_bytes)}, {size(memory.space.free_bytes)} free"
    return found([*_too_small(memory, ranks), *_filled(memory)], passed(seen_size))


def _too_small(memory: SharedMemory, ranks: int) -> Iterator[Finding]:
    total = memory.space.total_bytes
    if total >= (_FOR_MANY if ranks >= _MANY_RANKS else _LEAST):
        return
    needed = _FOR_MANY if ranks >= _MANY_RANKS and total >= _LEAST else _LEAST
    yield CHECK.finding(
        f"Shared memory (/dev/shm) has {size(total)}; a server with several workers needs at least {size(needed)}",
        [seen("file-system", f"statvfs(/dev/shm): {size(total)} in all, {size(memory.space.free_bytes)} free")],
        _STEPS,
        subjects=("file:/dev/shm",),
        severity="error" if total < _LEAST else "warning",
    )


def _filled(memory: SharedMemory) -> Iterator[Finding]:
    space = memory.space
    if not memory.leftovers or space.total_bytes < _LEAST or space.free_bytes >= min(_LEAST, space.total_bytes // 4):
        return
    names = [left.path for left in memory.leftovers]
    left_over = sum(left.size_bytes for left in memory.leftovers)
    yield CHECK.finding(
        f"Shared memory (/dev/shm) is nearly full: {size(space.free_bytes)} free, {size(left_over)} left by dead processes",
        [seen("file-system", f"nobody has these open: {listing(names)}")],
        (f"rm {' '.join(names[:8])}",),
        subjects=("file:/dev/shm",),
        severity="warning",
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD108",
        name="shm-too-small",
        severity="error",
        category="host",
        asks="is /dev/shm large enough for the workers' queues and NCCL?",
    ),
    evaluate=evaluate,
)
