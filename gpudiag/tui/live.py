"""A running server, watched by a child that may be killed at any time."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import IO, Final

import msgspec

from gpudiag.collect.children import PipedChild
from gpudiag.errors import GpudiagError
from gpudiag.tui.frame import Note, decode
from gpudiag.tui.orders import LENGTH_BYTES, Asked, Order, Wish
from gpudiag.tui.sources import Deliver

_MAX_MESSAGE_BYTES: Final = 64 << 20
_END_S: Final = 0.2


class Live:
    """Start it from the main thread: the child ends with the thread that started it."""

    live = True
    error: GpudiagError | None = None

    def __init__(self, order: Order) -> None:
        self._order = order
        self._child: PipedChild | None = None
        self._stopping = False

    def start(self, deliver: Deliver) -> None:
        """Start the child; after trouble another one."""
        self.stop()
        self._stopping = False
        try:
            child = PipedChild([sys.executable, "-P", "-m", "gpudiag.tui.collector", str(os.getpid())])
        except OSError as error:
            note = Note(text=f"cannot start {sys.executable}: {error.strerror}", trouble=True)
            deliver(note, b"")
            return
        self._child = child
        self._send(msgspec.json.encode(self._order))
        threading.Thread(target=self._listen, args=(child, deliver), daemon=True, name="collector").start()

    def stop(self) -> None:
        self._stopping = True
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            child.reap(_END_S)

    def ask(self, what: Asked, interval_s: float = 1.0) -> None:
        self._send(msgspec.json.encode(Wish(what=what, interval_s=interval_s)))

    def _send(self, line: bytes) -> None:
        """Short lines, which a pipe takes without waiting. A child that has gone is the listener's business."""
        if self._child is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):
                self._child.stdin.write(line + b"\n")
                self._child.stdin.flush()

    def _listen(self, child: PipedChild, deliver: Deliver) -> None:
        told = False
        with child.stdout, child.stderr:
            while (data := _next(child.stdout)) is not None:
                message = decode(data)
                told = isinstance(message, Note) and message.trouble
                deliver(message, data)
            if not (told or self._stopping):
                deliver(Note(text=f"the collector ended: {_last_words(child)}", help="r starts it again", trouble=True), b"")


def _next(stream: IO[bytes]) -> bytes | None:
    """The next message, or None at the end: also of a child that was killed in the middle of one."""
    try:
        head = stream.read(LENGTH_BYTES)
        length = int.from_bytes(head, "big")
        if len(head) < LENGTH_BYTES or length > _MAX_MESSAGE_BYTES:
            return None
        data = stream.read(length)
    except (OSError, ValueError):
        return None
    return data if len(data) == length else None


def _last_words(child: PipedChild) -> str:
    status = child.reap(_END_S)
    with contextlib.suppress(OSError, ValueError):
        os.set_blocking(child.stderr.fileno(), False)
        said = (child.stderr.read(4096) or b"").decode("utf-8", "replace").strip().splitlines()
        if said:
            return said[-1]
    return f"killed by signal {-status}" if status is not None and status < 0 else f"exit status {status}"
