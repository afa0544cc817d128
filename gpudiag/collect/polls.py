"""Which descriptors a thread waits for in poll(2), select(2) or epoll_wait(2)."""

from __future__ import annotations

from collections.abc import Mapping

from gpudiag.collect.memory import TargetMemory
from gpudiag.model.process import Syscall

_POLLFD_BYTES = 8
"""struct pollfd {int fd; short events; short revents} (include/uapi/asm-generic/poll.h)."""
_MOST_POLLED = 4096
_FD_SETSIZE = 1024
_EPOLL = frozenset({"epoll_wait", "epoll_pwait", "epoll_pwait2"})


def polled_fds(
    syscalls: Mapping[int, Syscall], watches: Mapping[int, tuple[int, ...]], memory: TargetMemory
) -> dict[int, tuple[int, ...]]:
    """By tid, the descriptors that each thread inside one of these calls waits for, in ascending order.

    `watches` are the descriptors behind each epoll descriptor. A set that cannot be read leaves its thread out.
    """
    found: dict[int, tuple[int, ...]] = {}
    for tid, call in syscalls.items():
        try:
            fds = _waited_for(call, watches, memory)
        except OSError:
            continue
        if fds is not None:
            found[tid] = tuple(sorted(set(fds)))
    return found


def _waited_for(call: Syscall, watches: Mapping[int, tuple[int, ...]], memory: TargetMemory) -> list[int] | None:
    if call.name in ("poll", "ppoll"):
        return _of_poll(call.args[0], call.args[1], memory)
    if call.name in ("select", "pselect6"):
        return _of_select(call.args[0] & 0xFFFFFFFF, call.args[1:4], memory)
    if call.name in _EPOLL:
        watched = watches.get(call.args[0] & 0xFFFFFFFF)
        return list(watched) if watched is not None else None
    return None


def _of_poll(address: int, count: int, memory: TargetMemory) -> list[int]:
    if not 0 < count <= _MOST_POLLED:
        return []
    raw = memory.read(address, count * _POLLFD_BYTES)
    fds = (int.from_bytes(raw[at : at + 4], "little", signed=True) for at in range(0, len(raw), _POLLFD_BYTES))
    # poll(2) ignores negative descriptors.
    return [fd for fd in fds if fd >= 0]


def _of_select(count: int, sets: tuple[int, ...], memory: TargetMemory) -> list[int]:
    """While select sleeps its sets still hold what was asked for; the kernel writes them on return only."""
    if count > _FD_SETSIZE:
        return []
    size = (count + 63) // 64 * 8
    found: list[int] = []
    for address in sets:
        if address and size:
            bits = int.from_bytes(memory.read(address, size), "little")
            found.extend(fd for fd in range(count) if bits >> fd & 1)
    return found
