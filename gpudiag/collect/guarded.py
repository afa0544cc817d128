"""The guarded child: reads that may hang with the target, in a process that may be killed for it.

Started by `gpudiag.collect.deadline` as `python -m gpudiag.collect.guarded PARENT_PID`; requests come on stdin, each
answered on stdout in turn. It ends when stdin does or its parent dies.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

from gpudiag.collect.flight_request import DumpsRequest, PipeRequest
from gpudiag.collect.guard_protocol import (
    FRAME_LIMIT,
    GREETING,
    LENGTH_BYTES,
    MemoryRequest,
    PathsRequest,
    Reply,
    Request,
    SocketsRequest,
    StateRequest,
    frame,
    request_decoder,
)
from gpudiag.collect.guarded_state import read_state
from gpudiag.collect.nccl_request import NcclRequest
from gpudiag.collect.parent_death import die_with


def main() -> None:
    """Answer requests until there are no more."""
    die_with(int(sys.argv[1]))
    replies = sys.stdout.buffer
    replies.write(GREETING)
    replies.flush()
    while (request := _next_request(sys.stdin.buffer)) is not None:
        replies.write(frame(_answer(request)))
        replies.flush()


def _next_request(stream: BinaryIO) -> Request | None:
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "big")
    if length > FRAME_LIMIT:
        raise ValueError(f"a request of {length} bytes")
    return request_decoder.decode(stream.read(length))


def _answer(request: Request) -> Reply:
    """Modules that only some requests need are imported when those come: most runs of the child are short."""
    if isinstance(request, StateRequest):
        return read_state(request)
    if isinstance(request, MemoryRequest):
        from gpudiag.collect.guarded_memory import read_memory

        return read_memory(request)
    if isinstance(request, SocketsRequest):
        from gpudiag.collect.guarded_sockets import read_sockets

        return read_sockets(request)
    if isinstance(request, PathsRequest):
        from gpudiag.collect.guarded_files import existing_paths

        return existing_paths(request)
    if isinstance(request, NcclRequest):
        from gpudiag.collect.nccl_guarded import read_nccl

        return read_nccl(request)
    if isinstance(request, (DumpsRequest, PipeRequest)):
        from gpudiag.collect import guarded_flight

        return guarded_flight.find_dumps(request) if isinstance(request, DumpsRequest) else guarded_flight.ask(request)
    from gpudiag.collect.guarded_files import read_files

    return read_files(request)


if __name__ == "__main__":
    main()
