"""Asking a server whether it generates tokens: after the last look, and only where a report would guess at a livelock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpudiag.collect.token_counts import count_tokens
from gpudiag.model.report import Report
from gpudiag.model.server import Server
from gpudiag.model.snapshot import Observation
from gpudiag.waits.demand import demand
from gpudiag.waits.index import Index

_GUESS = "GPD321"


class Door(NamedTuple):
    """Where a client of this server waits: the address that it came to."""

    root_pid: int
    address: str
    net_namespace: int | None


def doors(observation: Observation, servers: Sequence[Server], reports: Sequence[Report]) -> Iterator[Door]:
    """Of every server of which a report says that its ranks run and no request is answered."""
    guessed = {r.target.root_pid for r in reports if r.target is not None and any(f.code == _GUESS for f in r.findings)}
    index = Index(observation.last)
    for server in servers:
        oldest = demand(index, server).oldest if server.root_pid in guessed else None
        if oldest is not None:
            yield Door(server.root_pid, oldest.local, oldest.net_namespace)


def with_counts(observation: Observation, door: Door) -> Observation:
    """The observation with what the server's counters said."""
    last = observation.last
    counted = {**last.tokens, door.root_pid: count_tokens(door.address, door.net_namespace)}
    return Observation(snapshots=(*observation.snapshots[:-1], replace(last, tokens=counted)))
