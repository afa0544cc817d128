"""Reads of /proc that take the target's memory-map or exec lock. They run only in the guarded child."""

from __future__ import annotations

import os
from collections.abc import Callable

from gpudiag.collect import procfs
from gpudiag.collect.attempt import reading
from gpudiag.collect.environ import parse_environ
from gpudiag.collect.guard_protocol import StateReply, StateRequest
from gpudiag.collect.maps import Mapped, parse_maps
from gpudiag.collect.syscall_names import syscall_name
from gpudiag.model.process import IoCounters, Syscall
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable

_CMDLINE_LIMIT = 1 << 16
_ENVIRON_LIMIT = 1 << 18
_MAPS_LIMIT = 1 << 24


def read_state(request: StateRequest) -> StateReply:
    """Every source that `request.want` names, each with its own Reading."""
    pid = request.pid
    want = request.want
    mapped = reading(pid, lambda: _maps(pid)) if "maps" in want else NOT_ASKED
    return StateReply(
        cmdline=reading(pid, lambda: _cmdline(pid)) if "cmdline" in want else NOT_ASKED,
        exe=reading(pid, lambda: _exe(pid)) if "exe" in want else NOT_ASKED,
        environ=reading(pid, lambda: _environ(pid)) if "environ" in want else NOT_ASKED,
        shared_memory=_part(mapped, lambda m: m.shared_memory),
        libraries=_part(mapped, lambda m: m.libraries),
        python_version=mapped.value.python_version if isinstance(mapped, Ok) else None,
        io=reading(pid, lambda: _io(pid)) if "io" in want else NOT_ASKED,
        syscalls=reading(pid, lambda: _syscalls(pid, request.tids), attach=True) if "syscalls" in want else NOT_ASKED,
    )


def _part(
    mapped: Ok[Mapped] | Unavailable | Failed, choose: Callable[[Mapped], tuple[str, ...]]
) -> Ok[tuple[str, ...]] | Unavailable | Failed:
    if not isinstance(mapped, Ok):
        return mapped
    return Ok(value=choose(mapped.value), at=mapped.at, took_s=mapped.took_s)


def _cmdline(pid: int) -> tuple[str, ...]:
    raw = procfs.read_once(f"/proc/{pid}/cmdline", _CMDLINE_LIMIT).rstrip(b"\0")
    return tuple(procfs.text(word) for word in raw.split(b"\0")) if raw else ()


def _exe(pid: int) -> str:
    return procfs.text(os.readlink(f"/proc/{pid}/exe".encode()))


def _environ(pid: int) -> dict[str, str]:
    return parse_environ(procfs.read_all(f"/proc/{pid}/environ", _ENVIRON_LIMIT))


def _maps(pid: int) -> Mapped:
    return parse_maps(procfs.read_all(f"/proc/{pid}/maps", _MAPS_LIMIT))


def _io(pid: int) -> IoCounters:
    fields = dict(line.split(b": ", 1) for line in procfs.read_once(f"/proc/{pid}/io", 4096).splitlines() if b": " in line)
    try:
        return IoCounters(
            read_chars=int(fields[b"rchar"]),
            write_chars=int(fields[b"wchar"]),
            read_bytes=int(fields[b"read_bytes"]),
            write_bytes=int(fields[b"write_bytes"]),
        )
    except KeyError as error:
        raise ValueError(f"no line {error} in /proc/{pid}/io") from None


def _syscalls(pid: int, tids: tuple[int, ...]) -> dict[int, Syscall]:
    found: dict[int, Syscall] = {}
    for tid in tids:
        try:
            raw = procfs.read_once(f"/proc/{pid}/task/{tid}/syscall", 512)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if (call := parse_syscall(raw)) is not None:
            found[tid] = call
    return found


def parse_syscall(raw: bytes) -> Syscall | None:
    """A line of /proc/PID/task/TID/syscall: 'running', '-1 sp pc' (blocked outside a call), or number and six arguments."""
    fields = raw.split()
    if len(fields) < 7 or not fields[0].isdigit():
        return None
    number = int(fields[0])
    try:
        return Syscall(number=number, name=syscall_name(number), args=tuple(int(a, 16) for a in fields[1:7]))
    except ValueError:
        return None
