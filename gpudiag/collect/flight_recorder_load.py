"""Flight-recorder dumps of torch.distributed, pickled or JSON, read as plain data and nothing else.

A dump may come from anybody. The unpickler here knows no class and no function, so nothing in a dump can be called; but a
pickle of few bytes can still ask for much memory, so reading runs in a child with a limit (`flight_recorder_worker`).
"""

from __future__ import annotations

import errno
import io
import os
import pickle  # noqa: TID251  restricted below to data that cannot run
import stat
from typing import Any, Final, NamedTuple, NoReturn, Self

import msgspec

from gpudiag.collect.target_files import open_regular

MAX_BYTES: Final = 256 << 20


class Dump(NamedTuple):
    """A file with a dump: `path` as the process `pid` sees it, or with 0 as gpudiag does."""

    path: str
    pid: int = 0

    @property
    def argument(self) -> str:
        return f"{self.pid}:{self.path}"

    @classmethod
    def of(cls, argument: str) -> Self:
        """The reverse of `argument`."""
        pid, _, path = argument.partition(":")
        return cls(path, int(pid))


class Content(NamedTuple):
    """What a file holds, cut one byte after the limit, and the Unix time at which it was written."""

    data: bytes
    written_at: float


class RefusedError(ValueError):
    """Not a flight-recorder dump, or one that wants more than plain data."""


class _Whole(io.BytesIO):
    """Bytes that the unpickler may look at all at once, without a copy: else it would ask for each operation on its own."""

    def peek(self, _size: int = 0, /) -> bytes:
        """All that was not read yet, however little was asked for."""
        return self.getvalue()[self.tell() :]


class _Plain(pickle.Unpickler):
    """Containers, numbers, strings, bytes, booleans and None. Whatever needs a global is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedError(f"it wants to load {module[:60]}.{name[:60]}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise RefusedError(f"it refers to an object outside ({str(pid)[:60]})")


def read(dump: Dump) -> Content:
    """The file. Raises OSError for one that is not there, may not be read or is no regular file."""
    fd = open_regular(dump.pid, dump.path, (dump.path[-1:],)) if dump.pid else os.open(dump.path, os.O_RDONLY | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        # One byte more than it has: a file that grows meanwhile is cut, and a pickle that is cut is refused.
        return Content(file.read(min(status.st_size, MAX_BYTES) + 1), status.st_mtime)


def load(data: bytes) -> dict[str, Any]:
    """The dump. Raises RefusedError, with one line, for anything that is none. MemoryError where the limit is reached."""
    if len(data) > MAX_BYTES:
        raise RefusedError(f"larger than {MAX_BYTES >> 20} MiB")
    value = _pickled(data) if data[:1] == b"\x80" else _json(data)
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        raise RefusedError("it has no list of entries")
    return value


def _pickled(data: bytes) -> Any:
    try:
        return _Plain(_Whole(data)).load()
    except RefusedError:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        IndexError,
        KeyError,
        OverflowError,
    ) as error:
        raise RefusedError(f"damaged, or not plain data: {error}"[:200]) from None
    except RecursionError:
        raise RefusedError("nested too deeply") from None


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RefusedError(f"neither a pickle nor JSON: {error}"[:200]) from None
    except RecursionError:
        raise RefusedError("nested too deeply") from None
