"""NCCL's service in a look: asked where memory does not tell, or on request, and never while a communicator is created."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from gpudiag.collect import procfs
from gpudiag.collect.commands import run_all
from gpudiag.collect.nccl_state import NcclReading
from gpudiag.collect.nvml import has_driver
from gpudiag.collect.process_reader import WITHHELD
from gpudiag.collect.ras import BUDGET_S, Answer, address_of, query
from gpudiag.collect.ras import RasReading as AnswerReading
from gpudiag.model.communicator import RasCommunicator
from gpudiag.model.process import Process
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable

RasReading: TypeAlias = Ok[tuple[RasCommunicator, ...]] | Unavailable | Failed

_IN_PROGRESS: Final = 7
"""ncclInProgress (nccl.h)."""
_CREATES: Final = frozenset({"init_process_group", "new_group", "_new_process_group_helper", "ncclCommInitRank"})
"""Functions of torch.distributed, and of the bindings to NCCL in SGLang and vLLM, that create a communicator."""
_START_S: Final = 5.0
"""How long the child that goes into another namespace may take to start, beside its budget."""


class Said(NamedTuple):
    """What the service said: of all, and of each process whose memory could not be read."""

    ras: RasReading
    states: dict[int, NcclReading]


def ask_service(processes: Sequence[Process], *, always: bool) -> Said:
    """One question for all of them: the service knows every rank of the job. What it answers about strangers is not used.

    `always` also where the memory of every rank was read. `processes` have their NCCL state and, where readable, stacks.
    """
    unreadable = [p for p in processes if not isinstance(p.nccl, Ok) and p.nccl not in (NOT_ASKED, WITHHELD)]
    if not always and not (unreadable and has_driver()):
        return Said(NOT_ASKED, {})
    ready = [p for p in processes if isinstance(p.nccl, Ok) and any(n.communicators for n in p.nccl.value)]
    asked = next(iter((*ready, *unreadable)), None)
    if asked is None:
        return Said(Unavailable(reason="NCCL's service was not asked: no process here has a communicator", help=""), {})
    if (creating := next((p for p in processes if creates(p)), None)) is not None:
        reason = (
            f"NCCL's service was not asked: process {creating.pid} creates a communicator, and being asked then has crashed jobs"
        )
        return Said(Unavailable(reason=reason, help="attach again once the server is up"), {})
    answer = _query(asked)
    if not isinstance(answer, Ok):
        return Said(answer, {})
    ras: RasReading = Ok(value=answer.value.communicators, at=answer.at, took_s=answer.took_s)
    states: dict[int, NcclReading] = {}
    for process in unreadable:
        inner = process.ns_pids[-1] if process.ns_pids else process.pid
        if found := answer.value.nccl(inner):
            states[process.pid] = Ok(value=found, at=answer.at, took_s=answer.took_s)
    return Said(ras, states)


def creates(process: Process) -> bool:
    """Whether a communicator of the process is being set up, as far as its memory or its stacks show."""
    if isinstance(process.nccl, Ok) and any(c.init_state == _IN_PROGRESS for n in process.nccl.value for c in n.communicators):
        return True
    return isinstance(process.stacks, Ok) and any(f.function in _CREATES for s in process.stacks.value for f in s.frames)


def _query(process: Process) -> AnswerReading:
    address = address_of(process.environ.value if isinstance(process.environ, Ok) else {})
    if process.net_namespace in (None, procfs.namespace_inode("self", "net")):
        return query(address)
    arguments = (str(os.getpid()), str(process.pid), address[0], str(address[1]), str(BUDGET_S))
    command = [sys.executable, "-P", "-m", "gpudiag.collect.ras_inside", *arguments]
    done = run_all({process.pid: command}, deadline_s=BUDGET_S + _START_S).finished[process.pid]
    if done.late or done.status != 0:
        return Failed(error=f"NCCL's service: its reader in the net namespace of process {process.pid} did not answer")
    return msgspec.msgpack.decode(done.stdout, type=Ok[Answer] | Unavailable | Failed)
