"""What the NVML child says."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from gpudiag.model.gpu import GpuInventory

LENGTH_BYTES: Final = 4
FRAME_LIMIT: Final = 16 << 20


class Answer(Struct, frozen=True, kw_only=True):
    """Either an inventory, or why there is none and what to type."""

    inventory: GpuInventory | None = None
    unavailable: str = ""
    help: str = ""


def frame(answer: Answer) -> bytes:
    """An answer as it goes over the pipe."""
    body = msgspec.msgpack.encode(answer)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decode(body: bytes) -> Answer:
    """The inverse of `frame`, without the length. Raises msgspec.MsgspecError."""
    try:
        return msgspec.msgpack.decode(body, type=Answer)
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
