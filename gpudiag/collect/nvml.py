"""GPUs through the NVIDIA driver, in a child that is killed when a call does not come back."""

from __future__ import annotations

import os
import select
import sys
import time
from types import TracebackType
from typing import Final, Self, TypeAlias

import msgspec

from gpudiag.collect.children import PipedChild
from gpudiag.collect.nvml_protocol import FRAME_LIMIT, LENGTH_BYTES, decode
from gpudiag.model.gpu import GpuInventory
from gpudiag.model.reading import Failed, Ok, Unavailable

GpuReading: TypeAlias = Ok[GpuInventory] | Unavailable | Failed

DEADLINE_S: Final = 5.0
"""Healthy calls take milliseconds, the first one with a sleeping driver up to about 2 s (persistence mode off)."""
DEADLINE: Final = "deadline:"
"""How the error of a call that did not come back begins."""

NO_DRIVER: Final = Unavailable(reason="no NVIDIA driver on this machine", help="")
_DRIVER_FILES: Final = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg")
_READ_BYTES: Final = 1 << 16
_REAP_S: Final = 0.3
_MOST_CRASHES: Final = 3
"""Seen: the library of driver 580.159 crashed in every other process that asked it for everything one by one."""


def has_driver() -> bool:
    """Whether the kernel shows an NVIDIA driver here: its control device, its /proc folder, or WSL's GPU device."""
    return any(os.path.exists(path) for path in _DRIVER_FILES)


class Nvml:
    """A connection to the driver for several samples. `ask` starts a sample, `answer` waits for it: look elsewhere meanwhile.

    GPM needs two samples; it covers the time between `answer`s.
    """

    def __init__(self, deadline_s: float = DEADLINE_S, *, driver: bool | None = None) -> None:
        self._deadline_s = deadline_s
        self._driver = has_driver() if driver is None else driver
        self._child: PipedChild | None = None
        self._asked_at = 0.0
        self._failed: Failed | None = None
        self._crashes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ask(self) -> None:
        """Start a sample; returns at once."""
        if not self._driver or self._failed is not None:
            return
        if self._child is None:
            depth = "state" if self._crashes else "health"
            self._child = PipedChild([sys.executable, "-P", "-m", "gpudiag.collect.nvml_child", str(os.getpid()), depth])
            os.set_blocking(self._child.stdout.fileno(), False)
            os.set_blocking(self._child.stderr.fileno(), False)
        self._asked_at = time.monotonic()
        try:
            os.write(self._child.stdin.fileno(), b".")
        except BrokenPipeError:
            return

    def answer(self) -> GpuReading:
        """The sample that was asked for. A call that hung is not tried again: later answers repeat the failure."""
        if not self._driver:
            return NO_DRIVER
        if self._failed is not None:
            return self._failed
        child = self._child
        if child is None:
            return Failed(error="no sample was asked for")
        at = time.time()
        try:
            answer = decode(self._receive(child))
        except TimeoutError:
            return self._give_up(f"{DEADLINE} the driver did not answer within {self._deadline_s:g} s: {self._last(child)}")
        except (EOFError, msgspec.MsgspecError) as error:
            return self._after_crash(child, str(error))
        self._last(child)
        if answer.inventory is None:
            return Unavailable(reason=answer.unavailable, help=answer.help)
        return Ok(value=answer.inventory, at=at, took_s=sum(g.took_s for g in answer.inventory.gpus))

    def close(self) -> None:
        """End the child; one that the kernel does not let die is left to it."""
        child, self._child = self._child, None
        if child is not None:
            child.close_pipes()
            child.kill()
            child.reap(_REAP_S)

    def _after_crash(self, child: PipedChild, said: str) -> GpuReading:
        """A driver's library that crashes on one question may answer the others: ask again for less, a few times."""
        status = child.reap(_REAP_S)
        self._crashes += 1
        self.close()
        if self._crashes > _MOST_CRASHES:
            return self._give_up(f"the reader of GPUs died {self._crashes} times (status {status}): {said}")
        self.ask()
        return self.answer()

    def _give_up(self, error: str) -> Failed:
        self._failed = Failed(error=error)
        self.close()
        return self._failed

    def _receive(self, child: PipedChild) -> bytes:
        due = self._asked_at + self._deadline_s
        buffer, length = bytearray(), LENGTH_BYTES
        while len(buffer) < length:
            poll = select.poll()
            poll.register(child.stdout.fileno(), select.POLLIN)
            if not poll.poll(max(0.0, due - time.monotonic()) * 1000):
                raise TimeoutError
            piece = os.read(child.stdout.fileno(), _READ_BYTES)
            if not piece:
                raise EOFError(self._last(child))
            buffer += piece
            if length == LENGTH_BYTES and len(buffer) >= LENGTH_BYTES:
                length += int.from_bytes(buffer[:LENGTH_BYTES], "big")
                if length > FRAME_LIMIT:
                    raise EOFError(f"an answer of {length} bytes")
        return bytes(buffer[LENGTH_BYTES:])

    def _last(self, child: PipedChild) -> str:
        """The last line on the child's stderr: what it was asking, or how it died. Empties the pipe."""
        said = bytearray()
        while True:
            try:
                piece = os.read(child.stderr.fileno(), _READ_BYTES)
            except BlockingIOError:
                break
            if not piece:
                break
            said = bytearray((said + piece)[-_READ_BYTES:])
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"
