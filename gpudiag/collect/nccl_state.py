"""NCCL state of several processes: memory first, and a reason where that is not possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from gpudiag.collect.deadline import Guard
from gpudiag.collect.nccl_layouts import Layouts
from gpudiag.collect.nccl_request import NcclReply, NcclRequest
from gpudiag.model.communicator import Nccl
from gpudiag.model.reading import Failed, Ok, Unavailable

NcclReading: TypeAlias = Ok[tuple[Nccl, ...]] | Unavailable | Failed


def read_states(pids: Sequence[int], guard: Guard, layouts: Layouts) -> dict[int, NcclReading]:
    """By pid: one Nccl for each mapped copy of the library; an empty tuple for a process that maps none."""
    found = dict(zip(pids, _ask(pids, guard, layouts), strict=True))
    again = [pid for pid, reply in found.items() if isinstance(reply, NcclReply) and reply.unknown]
    for pid in again:
        reply = found[pid]
        for library in reply.unknown if isinstance(reply, NcclReply) else ():
            layouts.learn(pid, library)
    if again:
        found.update(zip(again, _ask(again, guard, layouts), strict=True))
    return {pid: _reading(pid, reply, layouts) for pid, reply in found.items()}


def _ask(pids: Sequence[int], guard: Guard, layouts: Layouts) -> list[NcclReply | Failed]:
    return guard.ask([NcclRequest(pid=pid, layouts=layouts.known) for pid in pids], NcclReply)


def _reading(pid: int, reply: NcclReply | Failed, layouts: Layouts) -> NcclReading:
    if isinstance(reply, Failed):
        return reply
    if isinstance(reply.nccl, Ok) or not reply.unknown:
        return reply.nccl
    library = reply.unknown[0]
    reason = layouts.refused.get(library.build_id, "no layout is known for it")
    return Unavailable(
        reason=f"{library.path} of process {pid}: {reason}",
        help="NCCL's own service was asked instead; install the wheel nvidia-nccl-cu13, which is not stripped",
    )
