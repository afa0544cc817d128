"""CUDA core dumps of a server's ranks: whom to ask, and what they say added to an observation."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from gpudiag.collect import kernel_dump
from gpudiag.collect.kernel_dump import Armed, find_debugger
from gpudiag.model.process import GONE, STOPPED, Process
from gpudiag.model.reading import Ok, Unavailable
from gpudiag.model.server import Member, Server
from gpudiag.model.snapshot import Gap, Observation, Snapshot
from gpudiag.waits.gpus import WAITING, devices

__all__ = ["Plan", "Target", "dump", "find_debugger", "plan", "without_dump"]


class Target(NamedTuple):
    """A rank that is to be asked."""

    rank: int | None
    armed: Armed


class Plan(NamedTuple):
    """Whom to ask. Without targets `refusal` says why there is nobody; `gaps` are single ranks that cannot be asked."""

    targets: tuple[Target, ...]
    gaps: tuple[Gap, ...] = ()
    refusal: Unavailable | None = None


def plan(observation: Observation, server: Server) -> Plan:
    """Ranks whose GPU holds a kernel that did not end in any look, or whose GPU is not known.

    A rank whose GPU works or idles is left alone: its dump would say nothing about a hang, and could end it.
    """
    last = observation.last
    ranks = [(m, p) for m in server.ranks if (p := last.process(m.pid)) is not None and p.state not in GONE]
    if not ranks:
        return Plan((), refusal=Unavailable(reason="no rank of the server is alive on this host", help=""))
    states = {pid: device.state for pid, device in devices(observation).items()}
    waiting = [(m, p) for m, p in ranks if m.pid not in states or states[m.pid] in {*WAITING, "unknown"}]
    if not waiting:
        shown = ", ".join(sorted(set(states.values())))
        reason = f"not dumped: no GPU of the server holds a kernel that does not end ({shown})"
        return Plan((), refusal=Unavailable(reason=reason, help=""))
    return _of(waiting, server, last)


def _of(ranks: list[tuple[Member, Process]], server: Server, last: Snapshot) -> Plan:
    environ = _environment(server, last)
    targets: list[Target] = []
    gaps: list[Gap] = []
    refusal: Unavailable | None = None
    for member, process in ranks:
        found = kernel_dump.armed(process, environ)
        if isinstance(found, Unavailable):
            refusal = refusal or found
            gaps.append(Gap(source="kernels", reason=f"pid {process.pid}: {found.reason}", help=found.help))
        elif process.state in STOPPED:
            reason = f"pid {process.pid} is stopped and cannot answer"
            gaps.append(Gap(source="kernels", reason=reason, help=f"kill -CONT {process.pid}"))
            refusal = refusal or Unavailable(reason=reason, help=f"kill -CONT {process.pid}")
        else:
            targets.append(Target(server.global_rank(member.rank), found))
    return Plan(tuple(targets), tuple(gaps)) if targets else Plan((), refusal=refusal)


def _environment(server: Server, last: Snapshot) -> dict[str, str]:
    """What the server was started with: setproctitle writes over the environment of a worker, others still show it."""
    environ: dict[str, str] = {}
    for member in server.members:
        process = last.process(member.pid)
        if process is not None and isinstance(process.environ, Ok):
            environ = {**process.environ.value, **environ}
    return environ


def dump(observation: Observation, found: Plan) -> Observation:
    """Ask the targets of a plan. This may end them."""
    taken = kernel_dump.take([t.armed for t in found.targets])
    last = replace(observation.last, kernels=taken.reading, gaps=(*observation.last.gaps, *found.gaps, *taken.gaps))
    return Observation(snapshots=(*observation.snapshots[:-1], last))


def without_dump(observation: Observation, why: Unavailable) -> Observation:
    """The same observation, saying why nobody was asked."""
    return Observation(snapshots=(*observation.snapshots[:-1], replace(observation.last, kernels=why)))
