"""Is anything owed: a client's request, a start that has not finished, a step of a job that serves nobody."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpudiag.engines.roles import FRONT
from gpudiag.model.finding import Evidence
from gpudiag.model.network import Socket
from gpudiag.model.reading import Ok
from gpudiag.model.server import Server
from gpudiag.waits.index import Index


class Demand(Struct, frozen=True, kw_only=True):
    """`state`: 'pending' (somebody waits for an answer), 'none' (looked, nobody does), 'unknown' (could not look).

    `why` is 'client', 'start' (no process accepts clients yet) or 'job' (a group that serves nobody). `age_s` is how long
    the oldest request has gone without a byte in return. `frontends` are the pids that owe the clients.
    """

    state: Literal["pending", "none", "unknown"]
    why: Literal["client", "start", "job", ""] = ""
    requests: int = 0
    age_s: float | None = None
    frontends: tuple[int, ...] = ()
    oldest: Socket | None = None
    """The frontend's end of the connection that has waited longest."""
    answered_ms: int | None = None
    """How long ago the last byte went to a client that is still connected."""
    kept_open: int = 0
    """Client connections that have had an answer and stay open: keep-alive, or a stream that stopped in the middle."""
    evidence: tuple[Evidence, ...] = ()


def demand(index: Index, server: Server) -> Demand:
    """What is in flight in one look."""
    if server.engine == "torch":
        return Demand(state="pending", why="job")
    reading = index.snapshot.sockets
    fronts = [m.pid for m in server.members if m.role in FRONT and index.alive(m.pid)]
    readable = [p for p in fronts if (process := index.by_pid.get(p)) is not None and isinstance(process.fds, Ok)]
    if not isinstance(reading, Ok) or not readable or len(readable) < len(fronts):
        return Demand(state="unknown")
    owned = {inode: pid for inode, who in index.holders.items() for pid, _ in who if pid in fronts}
    listening = {s.local for s in reading.value if s.state == "LISTEN" and s.family == "tcp" and s.inode in owned}
    if not listening:
        why: Literal["start", "job"] = "start" if server.engine in ("sglang", "vllm") else "job"
        return Demand(state="pending", why=why, frontends=tuple(fronts))
    clients = [
        s
        for s in reading.value
        if s.inode in owned and s.state == "ESTABLISHED" and _accepted(s, listening) and not _inside(s, index, server)
    ]
    pending = [s for s in clients if _unanswered(s)]
    if not pending:
        answers = [s.last_sent_ms for s in clients if s.last_sent_ms is not None and (s.bytes_sent or 0) > 1]
        return Demand(state="none", frontends=tuple(fronts), kept_open=len(clients), answered_ms=min(answers, default=None))
    oldest = max(pending, key=lambda s: s.last_received_ms or 0)
    age = oldest.last_received_ms / 1000 if oldest.last_received_ms is not None else None
    waited = f" for {age:.0f} s" if age is not None else ""
    return Demand(
        state="pending",
        why="client",
        requests=len(pending),
        age_s=age,
        frontends=tuple(sorted({owned[s.inode] for s in pending})),
        oldest=oldest,
        kept_open=len(clients) - len(pending),
        evidence=(
            Evidence(
                source="socket-table",
                claim=f"{len(pending)} client request{'s' if len(pending) != 1 else ''} without an answer{waited}",
                excerpt=_ages(pending[0]),
                at=index.snapshot.at,
            ),
        ),
    )


def _ages(socket: Socket) -> str:
    ages = f"last byte in {socket.last_received_ms} ms ago, last byte out {socket.last_sent_ms} ms ago"
    return f"{socket.local} <- {socket.remote}, {ages}"


def _accepted(socket: Socket, listening: set[str]) -> bool:
    """Whether the connection came in through one of the listening addresses (a wildcard listens on every address)."""
    port = socket.local.rpartition(":")[2]
    return socket.local in listening or any(a.rpartition(":")[2] == port and _wildcard(a) for a in listening)


def _wildcard(address: str) -> bool:
    return address.rpartition(":")[0] in ("0.0.0.0", "[::]", "::", "*")  # noqa: S104


def _unanswered(socket: Socket) -> bool:
    """Data came in after the last byte went out, or is still unread."""
    if socket.family != "tcp" or socket.state != "ESTABLISHED":
        return False
    if socket.receive_queue_bytes > 0:
        return True
    if not socket.bytes_received or socket.last_received_ms is None:
        return False
    # An accepted connection counts its SYN as one byte sent.
    if socket.bytes_sent is None or socket.bytes_sent <= 1 or socket.last_sent_ms is None:
        return True
    return socket.last_received_ms < socket.last_sent_ms


def _inside(socket: Socket, index: Index, server: Server) -> bool:
    peer = index.peer_socket(socket)
    if peer is None:
        return False
    return any(server.member(pid) is not None for pid, _ in index.holders.get(peer.inode, ()))
