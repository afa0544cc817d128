"""Has one process write its CUDA core dump, and has cuda-gdb read it. In a process of its own, which may be killed.

`python -m gpudiag.collect.kernel_dump_worker PARENT_PID REQUEST` takes the Request as JSON and answers with a Reply in
MessagePack.

CUDA's driver reads CUDA_COREDUMP_PIPE in a thread of its own, also while every other thread hangs; whatever is written
there starts the dump. The directory of the dump is opened before that: a process that ends takes its root with it.
"""

from __future__ import annotations

import os
import re
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec
from msgspec import Struct

from gpudiag.collect import cuda_gdb, procfs
from gpudiag.collect.core_file import is_complete
from gpudiag.collect.parent_death import die_with, dying_with_me
from gpudiag.collect.rooted import Root
from gpudiag.collect.target_files import working_directory
from gpudiag.model.process import GONE

TRIGGER: Final = b"1" * 4096
"""What started a dump on two H200s (driver 580); a single byte is reported not to."""
NEEDED_BYTES: Final = 256 << 20
"""A dump without the GPU's memory took 110 to 120 MB."""

_POLL_S: Final = 0.1
_STILL_S: Final = 0.3
"""A file that did not grow for so long, and that is a whole ELF file, is finished."""
_END_S: Final = 2.0
"""How long after its dump a process may take to be aborted."""
_MOST_OUTPUT: Final = 4 << 20
_MOST_ENTRIES: Final = 100_000
_PLAIN: Final = re.compile(r"[\w./+@%=:,-]+")
"""Paths that a command of cuda-gdb takes as they are."""


class Request(Struct, frozen=True, kw_only=True):
    """`directory` and `name` (a regular expression) say where the dump goes, as the process sees it.

    The pipe is its descriptor `pipe_fd`, or with None the path `pipe`. `debugger` None leaves the dump unread.
    """

    pid: int
    uid: int
    gid: int
    pipe_fd: int | None
    pipe: str
    directory: str
    name: str
    wait_s: float
    read_s: float
    debugger: str | None


class Reply(Struct, frozen=True, kw_only=True):
    """`error` says what went wrong; what came before that is still told. `texts` are (stdout, stderr) of each cuda-gdb run."""

    error: str = ""
    asked: bool = False
    """Whether the process was asked: from then on it may have ended."""
    path: str = ""
    size_bytes: int = 0
    wrote_s: float = 0.0
    ended: bool = False
    texts: tuple[tuple[str, str], ...] = ()


class _Entry(Struct, frozen=True):
    inode: int
    at_ns: int
    size_bytes: int


class _TroubleError(Exception):
    """The one line about what went wrong."""


def main() -> None:
    """Answer one request."""
    die_with(int(sys.argv[1]))
    request = msgspec.json.decode(sys.argv[2], type=Request)
    sys.stdout.buffer.write(msgspec.msgpack.encode(Dumper(request).run()))


class Dumper:
    """One dump, step by step."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._reply = Reply()
        self._name = re.compile(request.name)

    def run(self) -> Reply:
        try:
            directory = self._open_directory()
            before = self._entries(directory)
            self._trigger()
            name, file = self._wait(directory, before)
            self._read(name, file)
        except _TroubleError as error:
            self._note(error=str(error))
        except OSError as error:
            self._note(error=f"{error.filename or 'the dump'}: {error.strerror or error}")
        if self._reply.asked:
            self._note(ended=self._ended())
        return self._reply

    def _note(self, **known: object) -> None:
        self._reply = msgspec.structs.replace(self._reply, **known)

    def _open_directory(self) -> int:
        request = self._request
        wanted = request.directory or "."
        absolute = wanted if wanted.startswith("/") else os.path.join(working_directory(request.pid), wanted)
        with Root(request.pid) as root:
            found = root.open_path(absolute)
        directory = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.close(found)
        room = os.fstatvfs(directory)
        if room.f_bavail * room.f_frsize < NEEDED_BYTES:
            raise _TroubleError(f"less than {NEEDED_BYTES >> 20} MiB are free in {wanted}, where its dump would go")
        return directory

    def _entries(self, directory: int) -> dict[str, _Entry]:
        found: dict[str, _Entry] = {}
        with os.scandir(directory) as entries:
            for number, entry in enumerate(entries):
                if number == _MOST_ENTRIES:
                    break
                if self._name.fullmatch(entry.name) is not None and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.name] = _Entry(status.st_ino, status.st_mtime_ns, status.st_size)
        return found

    def _trigger(self) -> None:
        """Never waits: a pipe that nobody reads refuses to be opened."""
        request = self._request
        if request.pipe_fd is not None:
            known = os.open(f"/proc/{request.pid}/fd/{request.pipe_fd}", os.O_PATH | os.O_CLOEXEC)
        else:
            absolute = (
                request.pipe if request.pipe.startswith("/") else os.path.join(working_directory(request.pid), request.pipe)
            )
            with Root(request.pid) as root:
                try:
                    known = root.open_path(absolute)
                except FileNotFoundError:
                    raise _TroubleError(
                        f"its pipe {request.pipe} is not there: CUDA makes it when a rank first uses its GPU"
                    ) from None
        try:
            if not stat.S_ISFIFO(os.fstat(known).st_mode):
                raise _TroubleError(f"{request.pipe or 'its pipe'} is no pipe")
            try:
                pipe = os.open(f"/proc/self/fd/{known}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            except OSError as error:
                raise _TroubleError(f"nobody reads its pipe {request.pipe}: {error.strerror}") from error
        finally:
            os.close(known)
        self._note(asked=True)
        try:
            os.write(pipe, TRIGGER)
        finally:
            os.close(pipe)

    def _wait(self, directory: int, before: dict[str, _Entry]) -> tuple[str, int]:
        """The new dump, complete: its name, and a descriptor of it."""
        started = time.monotonic()
        seen: tuple[str, _Entry] | None = None
        since = started
        while (now := time.monotonic()) - started < self._request.wait_s:
            new = {n: e for n, e in self._entries(directory).items() if e != before.get(n)}
            newest = max(new.items(), key=lambda item: item[1].at_ns, default=None)
            if newest != seen:
                seen, since = newest, now
            elif newest is not None and now - since >= _STILL_S:
                file = os.open(newest[0], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
                if is_complete(file):
                    shown = os.path.join(self._request.directory, newest[0])
                    self._note(path=shown, size_bytes=newest[1].size_bytes, wrote_s=since - started)
                    return newest[0], file
                os.close(file)
            elif newest is None and not _alive(self._request.pid):
                raise _TroubleError("it ended without writing a dump")
            time.sleep(_POLL_S)
        self._too_late(seen, before)

    def _too_late(self, seen: tuple[str, _Entry] | None, before: dict[str, _Entry]) -> NoReturn:
        """Say what there is instead of a new, complete dump."""
        within = f"within {self._request.wait_s:g} s"
        if seen is not None:
            path = os.path.join(self._request.directory, seen[0])
            self._note(path=path, size_bytes=seen[1].size_bytes)
            raise _TroubleError(f"its dump {path} is cut off: {seen[1].size_bytes} bytes, and not complete {within}")
        if before:
            name, entry = max(before.items(), key=lambda item: item[1].at_ns)
            age_s = max(0.0, time.time() - entry.at_ns / 1e9)
            old = os.path.join(self._request.directory, name)
            raise _TroubleError(f"it wrote no new dump {within}; {old} is {age_s:.0f} s old and was not read")
        raise _TroubleError(f"it wrote no dump {within}")

    def _read(self, name: str, file: int) -> None:
        if self._request.debugger is None:
            raise _TroubleError("cuda-gdb was not found, so its dump was not read")
        due = time.monotonic() + self._request.read_s
        dump = self._place(name, file)
        first = self._debug(dump, file, due, kernels=0)
        self._note(texts=(first,))
        more = cuda_gdb.resident(first[0]) - 1
        if more > 0 and time.monotonic() < due:
            try:
                self._note(texts=(first, self._debug(dump, file, due, kernels=more)))
            except _TroubleError:
                return

    def _place(self, name: str, file: int) -> str:
        """A path under which cuda-gdb finds the very file: its own where this mount namespace has it there."""
        path = os.path.join(self._request.directory, name)
        try:
            known, here = os.fstat(file), os.stat(path)
            if path.startswith("/") and (known.st_dev, known.st_ino) == (here.st_dev, here.st_ino) and _PLAIN.fullmatch(path):
                return path
        except OSError:
            pass
        return f"/proc/self/fd/{file}"

    def _debug(self, dump: str, file: int, due: float, *, kernels: int) -> tuple[str, str]:
        """One run of cuda-gdb. As root it runs with the rights of the process whose dump it is: the file comes from there."""
        request = self._request
        other = os.geteuid() == 0 and request.uid != 0
        command = cuda_gdb.command(request.debugger or "", dump, kernels=kernels)
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            pass_fds=(file,),
            user=request.uid if other else None,
            group=request.gid if other else None,
            extra_groups=[] if other else None,
            preexec_fn=_before_debugger(),  # noqa: PLW1509  it calls nothing that another thread may have locked
        ) as debugger:
            try:
                out, err = debugger.communicate(timeout=max(0.1, due - time.monotonic()))
            except subprocess.TimeoutExpired:
                debugger.kill()
                debugger.communicate()
                raise _TroubleError(f"cuda-gdb did not read its dump within {request.read_s:g} s") from None
        return out[:_MOST_OUTPUT].decode("utf-8", "replace"), err[:_MOST_OUTPUT].decode("utf-8", "replace")

    def _ended(self) -> bool:
        due = time.monotonic() + _END_S
        while (alive := _alive(self._request.pid)) and time.monotonic() < due:
            time.sleep(_POLL_S)
        return not alive


def _before_debugger() -> Callable[[], None]:
    """It dies with this process, and leaves no core file of its own: cuda-gdb aborts on a dump that is cut off."""
    die = dying_with_me()

    def before_exec() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        die()

    return before_exec


def _alive(pid: int) -> bool:
    try:
        return procfs.read_stat(pid).state not in GONE
    except OSError:
        return False


if __name__ == "__main__":
    main()
