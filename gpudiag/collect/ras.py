"""NCCL's RAS service, asked over its own protocol: only where the memory of a rank cannot be read, or on request.

Every NCCL job since 2.24 listens on localhost:28028 (NCCL_RAS_ADDR). Asking is not free of risk: queries have crashed jobs
(NVIDIA/nccl #1762, #2346), so nobody should ask while communicators are being created. Protocol 2, JSON from 2.28.7 on
(NCCL 2.30.7, src/ras/client_support.cc).
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from gpudiag.model.communicator import COLLECTIVES, Communicator, MissingRank, Nccl, RasCommunicator
from gpudiag.model.decoding import decode_json
from gpudiag.model.reading import Failed, Ok, Unavailable

PORT: Final = 28028
BUDGET_S: Final = 3.0
_MOST_BYTES: Final = 64 << 20
_MISSING_COMMA: Final = re.compile(rb'("nvml_dev":\s*-?\d+)(\s+"status")')
"""NCCL 2.28.9 forgets the comma after nvml_dev in missing_ranks."""


class Answer(Struct, frozen=True, kw_only=True):
    """What the service said: communicators with their ranks, and the state of each rank by pid."""

    version: str
    communicators: tuple[RasCommunicator, ...]
    by_pid: dict[int, tuple[Communicator, ...]]

    def nccl(self, pid: int) -> tuple[Nccl, ...]:
        """The state of one process in the form that a read of its memory has."""
        mine = self.by_pid.get(pid, ())
        if not mine:
            return ()
        return (Nccl(library="", build_id="", version=self.version, communicators=mine, source="ras", layout="ras"),)


RasReading: TypeAlias = Ok[Answer] | Unavailable | Failed


def address_of(environ: Mapping[str, str]) -> tuple[str, int]:
    """Where a process with these variables listens: NCCL_RAS_ADDR is host:port, [IPv6]:port or a port."""
    text = environ.get("NCCL_RAS_ADDR", "")
    host, _, port = text.rpartition(":")
    number = int(port) if port.isdigit() and 0 < int(port) < 65_536 else PORT
    return host.strip("[]") or "localhost", number


def query(address: tuple[str, int], budget_s: float = BUDGET_S) -> RasReading:
    """Ask once. Unavailable where nobody listens; Failed if the answer does not come in time or makes no sense."""
    at, started = time.time(), time.perf_counter()
    try:
        body = _ask(address, time.monotonic() + budget_s, budget_s)
    except ConnectionRefusedError:
        return Unavailable(
            reason=f"nobody listens on {address[0]}:{address[1]}: no communicator yet, or NCCL_RAS_ENABLE=0", help=""
        )
    except TimeoutError:
        return Failed(error=f"NCCL's service did not answer within {budget_s:g} s: a rank does not respond to it")
    except (OSError, ValueError) as error:
        return Failed(error=f"NCCL's service: {error}")
    try:
        answer = parse(body)
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
        return Failed(error=f"NCCL's service answered with something else than expected: {error}")
    return Ok(value=answer, at=at, took_s=time.perf_counter() - started)


def _ask(address: tuple[str, int], due: float, budget_s: float) -> bytes:
    with socket.create_connection(address, timeout=budget_s) as connection:
        stream = connection.makefile("rb")
        for line, expected in (
            (b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL"),
            (b"TIMEOUT %d\n" % max(1, int(budget_s)), b"OK"),
            (b"SET FORMAT json\n", b"OK"),
        ):
            connection.settimeout(_left(due))
            connection.sendall(line)
            said = stream.readline(4096)
            if not said.startswith(expected):
                raise ValueError(f"it said {said[:80]!r} to {line.strip().decode()} (JSON needs NCCL 2.28.7)")
        connection.sendall(b"VERBOSE STATUS\n")
        body = bytearray()
        while True:
            connection.settimeout(_left(due))
            piece = connection.recv(1 << 16)
            if not piece:
                return bytes(body)
            body += piece
            if len(body) > _MOST_BYTES:
                raise ValueError("an answer that does not end")


def _left(due: float) -> float:
    left = due - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def parse(body: bytes) -> Answer:
    """Read the JSON of VERBOSE STATUS, repaired where NCCL writes it wrongly.

    Raises MsgspecError, ValueError, KeyError or TypeError.
    """
    document = decode_json(_MISSING_COMMA.sub(rb"\1,\2", body))
    by_pid: dict[int, list[Communicator]] = {}
    communicators = []
    for entry in document["communicators"]:
        pids = {}
        for rank in entry["ranks"]:
            pids[int(rank["rank"])] = int(rank["pid"])
            by_pid.setdefault(int(rank["pid"]), []).append(_communicator(entry, rank))
        missing = tuple(_missing(rank) for rank in entry.get("missing_ranks", ()))
        communicators.append(RasCommunicator(hash=str(entry["hash"]), size=int(entry["size"]), pids=pids, missing=missing))
    return Answer(
        version=str(document["nccl_version"]),
        communicators=tuple(communicators),
        by_pid={pid: tuple(sorted(cs, key=lambda c: (c.hash, c.rank))) for pid, cs in by_pid.items()},
    )


def _communicator(entry: Any, rank: Any) -> Communicator:
    status, counts = rank["status"], rank["collective_counts"]
    return Communicator(
        hash=str(entry["hash"]),
        rank=int(rank["rank"]),
        size=int(entry["size"]),
        cuda_device=int(rank["cuda_dev"]),
        nvml_device=int(rank["nvml_dev"]),
        launched=tuple(int(counts[name]) for name in COLLECTIVES),
        async_error=int(status["async_error"]),
        aborted=bool(status["abort_flag"]),
        init_state=int(status["init_state"]),
        finalizing=bool(status["finalize_called"]),
    )


def _missing(rank: Any) -> MissingRank:
    status = rank["status"]
    return MissingRank(
        rank=int(rank["rank"]),
        host=str(rank["host"]),
        pid=int(rank["pid"]),
        cuda_device=int(rank["cuda_dev"]),
        nvml_device=int(rank["nvml_dev"]),
        unresponsive=bool(status["unresponsive"]),
        dead=bool(status["considered_dead"]),
    )
