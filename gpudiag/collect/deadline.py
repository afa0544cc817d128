"""Deadlines for reads that may hang with the target: they run in a child that is killed when a pid takes too long."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from gpudiag.collect import procfs
from gpudiag.collect.children import PipedChild
from gpudiag.collect.guard_protocol import FRAME_LIMIT, LENGTH_BYTES, Reply, Request, frame, reply_decoder
from gpudiag.model.reading import Failed

R = TypeVar("R", bound=Reply)

_START_S = 10.0
"""How long a fresh interpreter may take until it says that it is there, on a machine under load."""
_IMPATIENCE = 4
_END_S = 0.2
_READ_BYTES = 1 << 18
_LAST_WORDS_BYTES = 4096


class Guard:
    """One child process for a scan or a series of looks; replaced when a read hangs in it.

    A pid that made it hang is not asked the same kind of thing again: such requests fail at once. After the first hang the
    patience with other pids is a quarter, since what hangs one worker of a server tends to hang them all. The child dies
    with the thread that started it, so a Guard belongs to the thread that made it.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._hung: set[tuple[int, type[Request]]] = set()
        self._child: PipedChild | None = None
        self._greeted = False

    def __enter__(self) -> Self:
        # A child that cannot be started fails each request, not the look.
        with contextlib.suppress(OSError):
            self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def renew(self, deadline_s: float) -> None:
        """Begin another series with the same child: what hung in the one before is asked again, now with this patience."""
        self._deadline_s = deadline_s
        self._hung.clear()

    def ask(self, requests: Sequence[Request], kind: type[R]) -> list[R | Failed]:
        """The reply (all of one `kind`) to each request, in their order; Failed for a pid that took longer than the deadline."""
        return [reply if isinstance(reply, (kind, Failed)) else _unexpected(reply) for reply in map(self._ask, requests)]

    def cpu_s(self) -> float:
        """Processor seconds that the child has used, 0 where there is none now."""
        try:
            ticks = procfs.read_stat(self._child.process.pid).cpu_ticks if self._child is not None else 0
        except OSError:
            return 0.0
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the child. Never waits for one that the kernel does not let die."""
        child, self._child = self._child, None
        if child is not None:
            child.close_pipes()
            child.kill()
            child.reap(_END_S)

    def _ask(self, request: Request) -> Reply | Failed:
        if (request.pid, type(request)) in self._hung:
            return self._late(request.pid)
        try:
            child = self._child or self._start()
        except OSError as error:
            return Failed(error=f"cannot start {sys.executable} to read process {request.pid}: {error.strerror}")
        try:
            self._greet(child)
            due = time.monotonic() + (self._deadline_s / _IMPATIENCE if self._hung else self._deadline_s)
            _send(child.stdin.fileno(), frame(request), due)
            body = _receive(child.stdout.fileno(), due)
        except TimeoutError:
            if self._greeted:
                self._hung.add((request.pid, type(request)))
            self.close()
            return self._late(request.pid)
        except (EOFError, BrokenPipeError):
            last_words = _last_words(child)
            self.close()
            return Failed(error=f"the reader of process {request.pid} died: {last_words}")
        return reply_decoder.decode(body)

    def _greet(self, child: PipedChild) -> None:
        """Wait for the empty frame with which a child says that it is ready."""
        if not self._greeted:
            _receive(child.stdout.fileno(), time.monotonic() + _START_S)
            self._greeted = True

    def _late(self, pid: int) -> Failed:
        return Failed(error=f"deadline: process {pid} kept a read waiting too long (limit {self._deadline_s:g} s)")

    def _start(self) -> PipedChild:
        child = PipedChild([sys.executable, "-P", "-m", "gpudiag.collect.guarded", str(os.getpid())])
        for pipe in (child.stdin, child.stdout, child.stderr):
            os.set_blocking(pipe.fileno(), False)
        self._child, self._greeted = child, False
        return child


def _unexpected(reply: Reply) -> Failed:
    return Failed(error=f"the reader answered with {type(reply).__name__}")


def _send(fd: int, data: bytes, due: float) -> None:
    rest = memoryview(data)
    while rest:
        _wait(fd, select.POLLOUT, due)
        rest = rest[os.write(fd, rest) :]


def _receive(fd: int, due: float) -> bytes:
    buffer = bytearray()
    length = LENGTH_BYTES
    while len(buffer) < length:
        _wait(fd, select.POLLIN, due)
        piece = os.read(fd, _READ_BYTES)
        if not piece:
            raise EOFError
        buffer += piece
        if length == LENGTH_BYTES and len(buffer) >= LENGTH_BYTES:
            length += int.from_bytes(buffer[:LENGTH_BYTES], "big")
            if length > FRAME_LIMIT:
                raise EOFError
    return bytes(buffer[LENGTH_BYTES:])


def _wait(fd: int, event: int, due: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    if not poll.poll(max(0.0, due - time.monotonic()) * 1000):
        raise TimeoutError


def _last_words(child: PipedChild) -> str:
    """The last line that a dead child wrote to stderr, or how it ended."""
    status = child.reap(_END_S)
    try:
        said = os.read(child.stderr.fileno(), _LAST_WORDS_BYTES)
    except BlockingIOError:
        said = b""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {status}"
