"""JSON that others wrote. Deep nesting ends a decoder with RecursionError, which nobody expects of bad input."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


@overload
def decode_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | str) -> Any: ...
def decode_json(data: bytes | str, kind: Any = Any) -> Any:
    """What the text holds, as `kind`. Raises msgspec.DecodeError, or ValidationError below it, for anything else."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is no UTF-8: {error.reason}") from error
