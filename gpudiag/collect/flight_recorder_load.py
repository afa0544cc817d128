"""Flight-recorder dumps of torch.distributed, pickled or JSON, read as plain data and nothing else.

A dump may come from anybody. The unpickler here knows no class and no function, so nothing in a dump can be called; but a
pickle of few bytes can still ask for much memory, so reading runs in a child with a limit (`flight_recorder_worker`).
"""

from __future__ import annotations

import io
import pickle  # noqa: TID251  restricted below to data that cannot run
from typing import Any, Final, NoReturn

import msgspec

MAX_BYTES: Final = 256 << 20


class RefusedError(ValueError):
    """Not a flight-recorder dump, or one that wants more than plain data."""


class _Plain(pickle.Unpickler):
    """Containers, numbers, strings, bytes, booleans and None. Whatever needs a global is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedError(f"it wants to load {module[:60]}.{name[:60]}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise RefusedError(f"it refers to an object outside ({str(pid)[:60]})")


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
        # A buffered reader lets the unpickler look ahead: four times as fast as a bare BytesIO.
        return _Plain(io.BufferedReader(io.BytesIO(data), 1 << 20)).load()
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
