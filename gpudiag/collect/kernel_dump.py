"""CUDA core dumps on demand: which ranks were started so that they give one, and what it says.

CUDA's driver makes a named pipe in each process that was started with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1, and dumps the
state of the GPU when something is written there. A process with a kernel on its GPU was aborted after it in 15 of 15 cases,
in spite of skip_abort; one without lived on (two H200s, driver 580, torch 2.11). So nothing here is done without being
asked for.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from gpudiag.collect import cuda_gdb
from gpudiag.collect.commands import Finished, run_all
from gpudiag.collect.kernel_dump_worker import Reply, Request
from gpudiag.model.kernel import KernelDump
from gpudiag.model.process import Process
from gpudiag.model.reading import Failed, Ok, Unavailable, value_or
from gpudiag.model.snapshot import Gap

KernelReading: TypeAlias = Ok[tuple[KernelDump, ...]] | Unavailable | Failed

ARM: Final = "at the next start of the server: gpudiag launch --arm-kernel-dump, or the variables of `gpudiag runbook GPD310`"
WAIT_S: Final = 20.0
"""For the dump to be complete. Without the GPU's memory it took 0.8 to 2.7 s on two H200s."""
READ_S: Final = 20.0
"""For cuda-gdb to read it, which took less than a second."""

_ENABLED: Final = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP"
_LIGHT: Final = "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP"
_FLAGS: Final = "CUDA_COREDUMP_GENERATION_FLAGS"
_FILE: Final = "CUDA_COREDUMP_FILE"
_PIPE: Final = "CUDA_COREDUMP_PIPE"
_DEFAULTS: Final = {_FILE: "core_%t_%h_%p.nvcudmp", _PIPE: "corepipe.cuda.%h.%p"}
_SLACK_S: Final = 10.0
_DEBUGGERS: Final = ("/usr/local/cuda/bin/cuda-gdb", "/opt/cuda/bin/cuda-gdb")


class Armed(NamedTuple):
    """A process that can be asked: its pipe, and where its dump will be."""

    process: Process
    pipe_fd: int | None
    pipe: str
    directory: str
    name: str
    """Regular expression of the file's name."""
    shown: str
    """The file as a person reads it."""


class Taken(NamedTuple):
    """What the dumps say, and for each process that gave none the reason."""

    reading: KernelReading
    gaps: tuple[Gap, ...]


def armed(process: Process, environ: Mapping[str, str]) -> Armed | Unavailable:
    """How to ask a process, by the environment it was started with; Unavailable for one that cannot be, with the reason."""
    if environ.get(_ENABLED) != "1":
        return Unavailable(reason=f"the server was not started with {_ENABLED}=1", help=ARM)
    if environ.get(_LIGHT) != "1" and "skip_global_memory" not in environ.get(_FLAGS, ""):
        reason = f"its dumps would hold the memory of the GPU: {_FLAGS} lacks skip_global_memory"
        return Unavailable(reason=reason, help=ARM)
    pid = process.ns_pids[-1] if process.ns_pids else process.pid
    file, pipe = (environ.get(name) or _DEFAULTS[name] for name in (_FILE, _PIPE))
    directory, _, base = file.rpartition("/")
    if "%t" in directory:
        return Unavailable(reason=f"the directory in {_FILE} has the time in its name: {file}", help=ARM)
    directory = _filled(directory, pid) if directory else "/" if file.startswith("/") else "."
    descriptor = _descriptor(process, _pattern(pipe.rpartition("/")[2], pid))
    if descriptor is None and "%t" in pipe:
        reason = f"process {process.pid} has no pipe named like {pipe} open, and its path has the time in it"
        return Unavailable(reason=reason, help="")
    shown = os.path.join(directory, _filled(base, pid).replace("%t", "TIME"))
    return Armed(process, descriptor, _filled(pipe, pid), directory, _pattern(base, pid), shown)


def find_debugger() -> str | None:
    """The cuda-gdb of this machine."""
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    places = (shutil.which("cuda-gdb"), *([f"{toolkit}/bin/cuda-gdb"] if toolkit else ()), *_DEBUGGERS)
    return next((p for p in places if p and os.access(p, os.X_OK)), None)


def take(targets: Sequence[Armed], *, wait_s: float = WAIT_S, read_s: float = READ_S) -> Taken:
    """Ask all of them at once, as the end of one rank takes the server down, and read what they write."""
    at, started = time.time(), time.monotonic()
    debugger = find_debugger()
    base = [sys.executable, "-P", "-m", "gpudiag.collect.kernel_dump_worker", str(os.getpid())]
    requests = {t.process.pid: _request(t, debugger, wait_s, read_s) for t in targets}
    deadline_s = wait_s + read_s + _SLACK_S
    finished = run_all({pid: [*base, r] for pid, r in requests.items()}, deadline_s=deadline_s, at_once=True).finished
    dumps: list[KernelDump] = []
    gaps: list[Gap] = []
    for target in targets:
        found = _understood(target, finished[target.process.pid])
        if isinstance(found, KernelDump):
            dumps.append(found)
        else:
            gaps.append(found)
    if not dumps:
        return Taken(Failed(error=gaps[0].reason if gaps else "no rank was asked"), tuple(gaps[1:]))
    return Taken(Ok(value=tuple(dumps), at=at, took_s=time.monotonic() - started), tuple(gaps))


def _request(target: Armed, debugger: str | None, wait_s: float, read_s: float) -> str:
    uid = target.process.uid
    request = Request(
        pid=target.process.pid,
        uid=uid,
        gid=_group(target.process.pid, uid),
        pipe_fd=target.pipe_fd,
        pipe=target.pipe,
        directory=target.directory,
        name=target.name,
        wait_s=wait_s,
        read_s=read_s,
        debugger=debugger,
    )
    return msgspec.json.encode(request).decode()


def _group(pid: int, uid: int) -> int:
    """The group of a process; nobody's where the kernel shows root's in its place (a process that is not dumpable)."""
    try:
        status = os.stat(f"/proc/{pid}")
    except OSError:
        return _NOBODY
    return status.st_gid if status.st_uid == uid else _NOBODY


_NOBODY: Final = 65_534


def _understood(target: Armed, done: Finished) -> KernelDump | Gap:
    pid = target.process.pid
    if done.late or done.status != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = "it took too long" if done.late else said[-1][:200] if said else f"status {done.status}"
        return Gap(source="kernels", reason=f"pid {pid}: the reader of its dump died: {why}", help="")
    reply = msgspec.msgpack.decode(done.stdout, type=Reply)
    error = reply.error
    try:
        if not error:
            return KernelDump(
                pid=pid,
                path=reply.path,
                size_bytes=reply.size_bytes,
                kernels=cuda_gdb.parse(*reply.texts[-1]),
                wrote_s=round(reply.wrote_s, 2),
                ended=reply.ended,
            )
    except cuda_gdb.CudaGdbError as trouble:
        error = f"cuda-gdb could not read its dump {reply.path}: {trouble}"
    ended = "; the process has ended" if reply.ended else ""
    by_hand = f"where there is a CUDA toolkit: cuda-gdb -batch -ex 'target cudacore {reply.path}' -ex 'info cuda kernels'"
    return Gap(source="kernels", reason=f"pid {pid}: {error}{ended}", help=by_hand if reply.path else "")


def _descriptor(process: Process, name: str) -> int | None:
    pattern = re.compile(name)
    for descriptor in value_or(process.fds, ()):
        if (
            descriptor.kind in ("pipe", "file")
            and descriptor.readable
            and pattern.fullmatch(descriptor.target.rpartition("/")[2])
        ):
            return descriptor.fd
    return None


def _filled(template: str, pid: int) -> str:
    return template.replace("%p", str(pid)).replace("%h", os.uname().nodename)


def _pattern(template: str, pid: int) -> str:
    """A regular expression of the names that a template stands for. The host's name may be that of a container."""
    names = {"%p": str(pid), "%h": r"[\w.-]{1,255}", "%t": r"\d{1,20}"}
    return "".join(names.get(part, re.escape(part)) for part in re.split(r"(%[pht])", template))
