"""What gpudiag and its guarded child say to each other: frames of a 4-byte big-endian length and MessagePack."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from gpudiag.collect.flight_request import DumpsReply, DumpsRequest, PipeReply, PipeRequest
from gpudiag.collect.nccl_request import NcclReply, NcclRequest
from gpudiag.model.file import FileFact
from gpudiag.model.network import Socket
from gpudiag.model.process import FutexWait, IoCounters, Sleep, Syscall
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable
from gpudiag.model.snapshot import Gap
from gpudiag.model.stack import FilePoll, LockUse, PyStack

Want = Literal["cmdline", "exe", "environ", "maps", "io", "syscalls"]

FRAME_LIMIT = 1 << 28
LENGTH_BYTES = 4
GREETING = bytes(LENGTH_BYTES)
"""The empty frame with which the child says that it is ready."""


class StateRequest(Struct, frozen=True, kw_only=True, tag="state"):
    """Read what /proc gives only under a lock that the target may hold. `tids` is for the system calls."""

    pid: int
    want: tuple[Want, ...]
    tids: tuple[int, ...] = ()


class StateReply(Struct, frozen=True, kw_only=True, tag="state"):
    """What was wanted; the rest is NOT_ASKED."""

    cmdline: Ok[tuple[str, ...]] | Unavailable | Failed = NOT_ASKED
    exe: Ok[str] | Unavailable | Failed = NOT_ASKED
    environ: Ok[dict[str, str]] | Unavailable | Failed = NOT_ASKED
    shared_memory: Ok[tuple[str, ...]] | Unavailable | Failed = NOT_ASKED
    libraries: Ok[tuple[str, ...]] | Unavailable | Failed = NOT_ASKED
    python_version: str | None = None
    io: Ok[IoCounters] | Unavailable | Failed = NOT_ASKED
    syscalls: Ok[dict[int, Syscall]] | Unavailable | Failed = NOT_ASKED


class MemoryRequest(Struct, frozen=True, kw_only=True, tag="memory"):
    """Read what the threads in `syscalls` sleep on, and with `stacks` the locks and polled files behind their frames.

    `watches` are the descriptors behind each epoll descriptor.
    """

    pid: int
    syscalls: dict[int, Syscall]
    tids: frozenset[int]
    watches: dict[int, tuple[int, ...]]
    python_version: str | None = None
    stacks: tuple[PyStack, ...] | None = None


class MemoryReply(Struct, frozen=True, kw_only=True, tag="memory"):
    """What the memory of a process says about what its threads wait for."""

    futexes: Ok[tuple[FutexWait, ...]] | Unavailable | Failed = NOT_ASKED
    polls: Ok[dict[int, tuple[int, ...]]] | Unavailable | Failed = NOT_ASKED
    sleeps: Ok[tuple[Sleep, ...]] | Unavailable | Failed = NOT_ASKED
    lock_uses: Ok[tuple[LockUse, ...]] | Unavailable | Failed = NOT_ASKED
    file_polls: Ok[tuple[FilePoll, ...]] | Unavailable | Failed = NOT_ASKED


class FilesRequest(Struct, frozen=True, kw_only=True, tag="files"):
    """Look at `paths` as the process `pid` sees them, and for who has them open."""

    pid: int
    paths: tuple[str, ...]


class FilesReply(Struct, frozen=True, kw_only=True, tag="files"):
    """One fact for each path that could be looked up."""

    files: tuple[FileFact, ...]


class PathsRequest(Struct, frozen=True, kw_only=True, tag="paths"):
    """Which of `paths` exist in the root of `pid`."""

    pid: int
    paths: frozenset[str]


class PathsReply(Struct, frozen=True, kw_only=True, tag="paths"):
    """Those of the paths that exist."""

    existing: frozenset[str]


class SocketsRequest(Struct, frozen=True, kw_only=True, tag="sockets"):
    """The sockets in `inodes` and their other ends in the net namespace of `pid`, which is not the observer's."""

    pid: int
    net_namespace: int | None
    inodes: frozenset[int]


class SocketsReply(Struct, frozen=True, kw_only=True, tag="sockets"):
    """The sockets, and what their source could not say."""

    sockets: Ok[tuple[Socket, ...]] | Unavailable | Failed
    gaps: tuple[Gap, ...] = ()


Request: TypeAlias = (
    StateRequest | MemoryRequest | FilesRequest | PathsRequest | SocketsRequest | NcclRequest | DumpsRequest | PipeRequest
)
Reply: TypeAlias = StateReply | MemoryReply | FilesReply | PathsReply | SocketsReply | NcclReply | DumpsReply | PipeReply

_encoder = msgspec.msgpack.Encoder()
request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
    """A message as it goes over the pipe."""
    body = _encoder.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
