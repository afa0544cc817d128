"""What a source of the terminal interface delivers: one moment of one server, ready to be shown."""

from __future__ import annotations

import zlib
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from gpudiag.model.log import ServerLog
from gpudiag.model.report import Report
from gpudiag.model.run import RunManifest, RunProgress
from gpudiag.model.snapshot import Observation, Snapshot

T = TypeVar("T")

_LEVEL: Final = 1
"""Of compression: looks at alike ranks shrink to a tenth at once, and more effort would be paid at every look."""
MAX_UNPACKED_BYTES: Final = 256 << 20


class Measure(Struct, frozen=True, kw_only=True):
    """What one process does, in numbers. None: nothing says so.

    `gpu` is the driver's index. `sm_percent` is the share of multiprocessors with a resident block where the card tells it
    (Hopper and newer), else the share of time with any kernel resident. `launched` counts the collectives of the
    communicator that tells most, `behind` how many of them others are ahead while nobody moves.
    """

    gpu: int | None = None
    power_w: float | None = None
    sm_percent: float | None = None
    cpu_percent: float | None = None
    launched: int | None = None
    behind: int = 0


class GpuPoint(Struct, frozen=True, kw_only=True):
    """One GPU at one moment, for curves."""

    index: int
    power_w: float | None = None
    sm_percent: float | None = None


class Run(Struct, frozen=True, kw_only=True):
    """A server that gpudiag started, from its run directory. Without `progress` it has not said anything yet."""

    manifest: RunManifest
    progress: RunProgress | None = None
    tail: tuple[str, ...] = ()
    """The last lines that the server printed."""


class Details(Struct, frozen=True, kw_only=True):
    """Everything that was read for a frame, for screens that look closer and for exports. Nothing of it is cleaned."""

    observation: Observation | None = None
    native: Snapshot | None = None
    """A look with C frames, where one was asked for. Nothing is judged by it."""
    reports: tuple[Report, ...] = ()
    logs: tuple[ServerLog, ...] = ()


class Frame(Struct, frozen=True, kw_only=True, tag="frame"):
    """One moment. `reports` are cleaned for the terminal (render.safe); `packed` is `Details`, see `unpack`.

    `measures` is by pid. `took_s` is what the look took, `at` Unix time of the look.
    """

    number: int
    at: float
    reports: tuple[Report, ...] = ()
    measures: dict[int, Measure] = {}
    gpus: tuple[GpuPoint, ...] = ()
    run: Run | None = None
    took_s: float = 0.0
    native: bool = False
    """Whether C frames were asked for in this look."""
    packed: bytes = b""


class Note(Struct, frozen=True, kw_only=True, tag="note"):
    """Something that a source says instead of a frame: what it is doing, or (`trouble`) why there will be no more."""

    text: str
    help: str = ""
    trouble: bool = False


Message = Frame | Note

_message_decoder = msgspec.msgpack.Decoder(Message)
_details_decoder = msgspec.msgpack.Decoder(Details)


def pack(details: Details) -> bytes:
    return zlib.compress(_encode(details), _LEVEL)


def unpack(packed: bytes) -> Details:
    """The details of a frame. Costs a millisecond for each 200 kB of them: only for what is on the screen.

    Raises what `decode` does.
    """
    if not packed:
        return Details()
    return _decode(_details_decoder, packed)


def encode(message: Message) -> bytes:
    """The message as bytes, for the pipe and for the ring."""
    return zlib.compress(_encode(message), _LEVEL)


def decode(data: bytes) -> Message:
    """The reverse of `encode`. Raises ValueError, msgspec.DecodeError among it, or zlib.error for anything else."""
    return _decode(_message_decoder, data)


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(_inflate(data))
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(data, MAX_UNPACKED_BYTES)
    if inflater.unconsumed_tail:
        raise ValueError(f"a frame of more than {MAX_UNPACKED_BYTES >> 20} MB")
    return plain


def _encode(value: Struct) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        from gpudiag.session.record import encodable

        return msgspec.msgpack.encode(encodable(value))
