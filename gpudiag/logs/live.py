"""The log of a server that runs: the files behind its standard output and error, read in a child that may be killed.

A log may lie on the very storage that hangs the server; a read of it then never returns, and its reader cannot be killed.
The child is abandoned in that case. It runs `python -m gpudiag.logs.live` with the request on stdin and answers on stdout.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from gpudiag.model.log import LogFacts, ServerLog

HEAD_BYTES: Final = 1 << 20
TAIL_BYTES: Final = 8 << 20
WHOLE_BYTES: Final = 64 << 20
"""A log up to this size is read as a whole, which takes a tenth of a second; of a larger one its start and its end."""
DEADLINE_S: Final = 5.0
_HELP: Final = "gpudiag explain FILE, with the file that the log goes to"


class Stream(Struct, frozen=True, kw_only=True):
    """Descriptor `fd` of process `pid`, which was the file `name` with this inode when it was looked at."""

    pid: int
    fd: int
    inode: int
    name: str


class _Answer(Struct, frozen=True, kw_only=True):
    facts: LogFacts | None
    written_at: float | None = None
    reason: str = ""


class LogReader:
    """The child that reads logs. It may be started ahead of need: that takes longer than reading most logs."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """Have a child ready for the next read. Raises OSError if it cannot be started."""
        if self._child is None:
            self._child = _start()
        return self._child

    def read(self, root_pid: int, streams: Sequence[Stream], deadline_s: float = DEADLINE_S) -> ServerLog:
        """Read these files, each once. Never raises for what they are; `reason` says what went wrong."""
        if not streams:
            return ServerLog(root_pid=root_pid, reason="standard output and error are no files", help=_HELP)
        answer = self._ask(msgspec.json.encode(list(streams)), deadline_s)
        help = "" if answer.facts is not None else _HELP
        return ServerLog(root_pid=root_pid, facts=answer.facts, written_at=answer.written_at, reason=answer.reason, help=help)

    def close(self) -> None:
        """End a child that was started and not needed."""
        child, self._child = self._child, None
        if child is not None:
            _end(child)

    def _ask(self, request: bytes, deadline_s: float) -> _Answer:
        try:
            child = self.start()
        except OSError as error:
            return _Answer(facts=None, reason=f"cannot start {sys.executable}: {error.strerror}")
        try:
            out, _ = child.communicate(request, timeout=deadline_s)
            return msgspec.json.decode(out, type=_Answer)
        except subprocess.TimeoutExpired:
            return _Answer(facts=None, reason=f"deadline: the storage did not answer within {deadline_s:g} s")
        except msgspec.DecodeError:
            return _Answer(facts=None, reason=f"the reader ended with status {child.returncode}")
        finally:
            self.close()


def _start() -> subprocess.Popen[bytes]:
    import gpudiag

    root = str(Path(gpudiag.__file__).resolve().parents[1])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "gpudiag.logs.live"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    """Never waits for a child that the kernel does not let die, nor needs the right to send a signal."""
    with contextlib.suppress(PermissionError):
        child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=0.2)


def _read(streams: Sequence[Stream]) -> _Answer:
    from gpudiag.logs.builder import Builder
    from gpudiag.logs.facts import scan_text

    builder = Builder()
    seen: set[tuple[int, int]] = set()
    written: list[float] = []
    reasons: list[str] = []
    for stream in streams:
        try:
            with _open(stream) as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                written.append(status.st_mtime)
                name = stream.name
                text = _text(file, status.st_size)
                if status.st_size > WHOLE_BYTES:
                    name += f" (first {HEAD_BYTES >> 20} and last {TAIL_BYTES >> 20} MiB)"
                scan_text(builder, io.BytesIO(text), name)
        except OSError as error:
            reasons.append(f"{stream.name}: {error.strerror or error}")
    if not seen:
        return _Answer(facts=None, reason="; ".join(dict.fromkeys(reasons)))
    return _Answer(facts=builder.facts(), written_at=max(written))


def _text(file: IO[bytes], size: int) -> bytes:
    """The whole file, or the whole lines of its two ends; never what is written meanwhile."""
    if size <= WHOLE_BYTES:
        return file.read(size)
    head = file.read(HEAD_BYTES)
    file.seek(size - TAIL_BYTES)
    tail = file.read(TAIL_BYTES)
    return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]


def _open(stream: Stream) -> IO[bytes]:
    """The file behind the descriptor, whatever happened to its name. Raises OSError if it is another one now, or no file."""
    path = f"/proc/{stream.pid}/fd/{stream.fd}"
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_ino != stream.inode:
        raise OSError(None, "is another file now")
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=HEAD_BYTES)


def main() -> None:
    # Before there is a request: whoever started this ahead of need has the time for it.
    import gpudiag.logs.facts  # noqa: F401

    streams = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Stream])
    sys.stdout.buffer.write(msgspec.json.encode(_read(streams)))


if __name__ == "__main__":
    main()
