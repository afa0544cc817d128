"""What the guarded child read of /proc, put into a Process."""

from __future__ import annotations

import msgspec

from gpudiag.collect.guard_protocol import StateReply, StateRequest, Want
from gpudiag.collect.process_reader import WITHHELD, Source, exited
from gpudiag.model.process import Process
from gpudiag.model.reading import Failed, Ok

_ALWAYS: tuple[Want, ...] = ("cmdline", "exe", "maps")
_OPTIONAL: tuple[Want, ...] = ("environ", "io", "syscalls")
_CONSTANT: frozenset[Want] = frozenset({"exe", "maps", "environ"})


def state_request(process: Process, withhold: frozenset[Source], earlier: Process | None) -> StateRequest:
    """Everything about a process that is read in full, but for what is withheld or an earlier look has already."""
    wanted = (*_ALWAYS, *(want for want in _OPTIONAL if want not in withhold))
    if earlier is not None and isinstance(earlier.libraries, Ok):
        wanted = tuple(want for want in wanted if want not in _CONSTANT)
    return StateRequest(pid=process.pid, want=wanted, tids=tuple(t.tid for t in process.threads))


def with_constants(process: Process, earlier: Process | None) -> Process:
    """What does not change in the life of a process, from an earlier look at it.

    The memory map of a GPU process is long, and reading it holds a lock that the process needs.
    """
    if earlier is None or not isinstance(earlier.libraries, Ok):
        return process
    return msgspec.structs.replace(
        process,
        exe=earlier.exe,
        environ=earlier.environ,
        shared_memory=earlier.shared_memory,
        libraries=earlier.libraries,
        python_version=earlier.python_version,
    )


def with_state(process: Process, reply: StateReply | Failed) -> Process:
    """A Process with the parts of the reply that were asked for."""
    if isinstance(reply, Failed):
        return msgspec.structs.replace(
            process,
            cmdline=reply,
            exe=reply,
            environ=reply,
            io=reply,
            shared_memory=reply,
            libraries=reply,
            syscalls=reply,
        )
    return msgspec.structs.replace(
        process,
        cmdline=reply.cmdline,
        exe=reply.exe,
        environ=reply.environ,
        io=reply.io,
        shared_memory=reply.shared_memory,
        libraries=reply.libraries,
        python_version=reply.python_version,
        syscalls=reply.syscalls,
    )


def withheld_state(process: Process, withhold: frozenset[Source]) -> Process:
    """The same with the sources that were left out on purpose marked so."""
    return msgspec.structs.replace(
        process,
        environ=WITHHELD if "environ" in withhold else process.environ,
        io=WITHHELD if "io" in withhold else process.io,
        syscalls=WITHHELD if "syscalls" in withhold else process.syscalls,
    )


def zombie(process: Process) -> Process:
    """A process that has exited: nothing of it can be read any more."""
    gone = exited(process.pid)
    return msgspec.structs.replace(
        process,
        cmdline=gone,
        exe=gone,
        environ=gone,
        io=gone,
        fds=gone,
        shared_memory=gone,
        libraries=gone,
        syscalls=gone,
        polls=gone,
        sleeps=gone,
        futexes=gone,
        stacks=gone,
        lock_uses=gone,
        file_polls=gone,
    )


def has_python(process: Process) -> bool:
    """Whether there is a Python to read, as far as its memory map or the name of its program tell."""
    if process.python_version is not None:
        return True
    return isinstance(process.exe, Ok) and "python" in process.exe.value.rpartition("/")[2]
