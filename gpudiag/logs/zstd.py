"""Reading .zst files: with the standard library from Python 3.14 on, before that with the package zstandard."""

from __future__ import annotations

import importlib
import io
from typing import IO, TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_STEP_BYTES: Final = 512
"""Of compressed data at a time. Four bytes may stand for a block of 128 KiB, so that a step makes at most 16 MiB."""


def open_zstd(raw: IO[bytes]) -> IO[bytes] | None:
    """`raw` decompressed, all its frames; None if this Python cannot. Damage raises EOFError or one of `errors()`."""
    try:
        return cast("IO[bytes]", importlib.import_module("compression.zstd").ZstdFile(raw, "rb"))
    except ImportError:
        pass
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        return None
    return io.BufferedReader(_Frames(raw, zstandard), 1 << 20)


def errors(loaded: dict[str, Any]) -> tuple[type[Exception], ...]:
    """The error classes of whichever library is in `loaded` (sys.modules); importing one only for that would cost time."""
    found = (loaded.get(name) for name in ("compression.zstd", "zstandard"))
    return tuple(cast("type[Exception]", module.ZstdError) for module in found if module is not None)


class _Frames(io.RawIOBase):
    """Frames one after the other, as appending to a log makes them. zstandard's own reader is silent where a file was cut."""

    def __init__(self, raw: IO[bytes], zstandard: Any) -> None:
        self._raw = raw
        self._new = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._input = b""
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        while not self._output:
            if not self._input:
                self._input = self._raw.read(_STEP_BYTES)
            if not self._input:
                if self._frame is not None:
                    raise EOFError("compressed file ended before the end of its last frame")
                return 0
            self._frame = self._frame or self._new()
            self._output = memoryview(self._frame.decompress(self._input))
            self._input = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._output))
        view[:size] = self._output[:size]
        self._output = self._output[size:]
        return size
