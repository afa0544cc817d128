"""Reads of the target's memory. They run only in the guarded child."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpudiag.collect.attempt import reading
from gpudiag.collect.futex import futex_waits
from gpudiag.collect.guard_protocol import MemoryReply, MemoryRequest
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.polls import polled_fds
from gpudiag.collect.sleeps import sleeps
from gpudiag.collect.threads import inner_tids
from gpudiag.model.process import FutexWait
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable
from gpudiag.model.stack import FilePoll, LockUse, PyStack

T = TypeVar("T")


def read_memory(request: MemoryRequest) -> MemoryReply:
    """Futexes, and when stacks came with the request, lock uses and file polls."""
    opened = reading(request.pid, lambda: TargetMemory(request.pid), attach=True)
    if not isinstance(opened, Ok):
        return MemoryReply(futexes=opened, polls=opened, sleeps=opened, lock_uses=opened, file_polls=opened)
    with opened.value as memory:
        return MemoryReply(
            futexes=reading(request.pid, lambda: _futexes(request, memory), attach=True),
            polls=reading(request.pid, lambda: polled_fds(request.syscalls, request.watches, memory), attach=True),
            sleeps=reading(request.pid, lambda: sleeps(request.syscalls, request.tids, memory), attach=True),
            lock_uses=_from_stacks(request, memory, _lock_uses),
            file_polls=_from_stacks(request, memory, _file_polls),
        )


def _futexes(request: MemoryRequest, memory: TargetMemory) -> tuple[FutexWait, ...]:
    return futex_waits(request.syscalls, request.tids, inner_tids(request.pid, request.tids), memory)


def _from_stacks(
    request: MemoryRequest,
    memory: TargetMemory,
    read: Callable[[int, str, tuple[PyStack, ...], TargetMemory], T],
) -> Ok[T] | Unavailable | Failed:
    stacks, version = request.stacks, request.python_version
    if stacks is None:
        return NOT_ASKED
    if version is None:
        return Failed(error=f"no Python version known for process {request.pid}")
    return reading(request.pid, lambda: read(request.pid, version, stacks, memory), attach=True)


def _lock_uses(pid: int, version: str, stacks: tuple[PyStack, ...], memory: TargetMemory) -> tuple[LockUse, ...]:
    from gpudiag.collect.lock_uses import lock_uses

    return lock_uses(pid, version, stacks, memory)


def _file_polls(pid: int, version: str, stacks: tuple[PyStack, ...], memory: TargetMemory) -> tuple[FilePoll, ...]:
    from gpudiag.collect.file_polls import file_polls

    return file_polls(pid, version, stacks, memory)
