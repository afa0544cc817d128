"""The sockets of a look, over all net namespaces that its processes are in."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from gpudiag.collect import procfs
from gpudiag.collect.deadline import Guard
from gpudiag.collect.guard_protocol import SocketsReply, SocketsRequest
from gpudiag.collect.sockets import own_table, socket_inodes, with_peers
from gpudiag.model.network import Socket
from gpudiag.model.process import Process
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.snapshot import Gap


class Network(NamedTuple):
    """`peer_inodes` are the sockets at the other ends, whoever has them open."""

    sockets: Ok[tuple[Socket, ...]] | Unavailable | Failed
    gaps: tuple[Gap, ...]
    peer_inodes: frozenset[int]


def read_network(processes: Iterable[Process], guard: Guard) -> Network:
    """The sockets that `processes` have open and their other ends.

    A namespace that cannot be read is a gap as long as another one can; if none can, the reading says why.
    """
    at, started = time.time(), time.perf_counter()
    processes = list(processes)
    inodes = socket_inodes(processes)
    own = procfs.namespace_inode("self", "net")
    by_namespace: dict[int | None, Process] = {}
    for process in processes:
        by_namespace.setdefault(process.net_namespace, process)
    sockets: list[Socket] = []
    gaps: list[Gap] = []
    refusals: list[Unavailable | Failed] = []
    for namespace, process in by_namespace.items():
        if namespace is None or namespace == own:
            try:
                table = own_table("self", own)
            except OSError as error:
                refusals.append(Failed(error=f"sockets: {error}"))
                continue
            sockets.extend(with_peers(table.sockets, inodes))
            gaps.extend(table.gaps)
            continue
        (reply,) = guard.ask([SocketsRequest(pid=process.pid, net_namespace=namespace, inodes=inodes)], SocketsReply)
        answer = reply if isinstance(reply, Failed) else reply.sockets
        if isinstance(answer, Ok):
            sockets.extend(answer.value)
            gaps.extend(reply.gaps if isinstance(reply, SocketsReply) else ())
        else:
            refusals.append(answer)
    if refusals and not sockets:
        return Network(refusals[0], tuple(gaps), frozenset())
    gaps.extend(_as_gap(refusal) for refusal in refusals)
    reading = Ok(value=tuple(dict.fromkeys(sockets)), at=at, took_s=time.perf_counter() - started)
    return Network(reading, tuple(gaps), frozenset(s.inode for s in sockets if s.inode))


def _as_gap(refusal: Unavailable | Failed) -> Gap:
    if isinstance(refusal, Failed):
        return Gap(source="sockets", reason=refusal.error, help="")
    return Gap(source="sockets", reason=refusal.reason, help=refusal.help)
