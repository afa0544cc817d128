"""How rules speak of nodes: labels, culprits, consequences, and the questions they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from gpudiag.engines.frames import telling_frame
from gpudiag.model import node
from gpudiag.model.finding import CONFIDENCE_ORDER, Consequence, Culprit, Evidence
from gpudiag.model.node import Node
from gpudiag.model.process import Process, Syscall
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member, Rank, Server
from gpudiag.model.stack import Frame
from gpudiag.rules.confidence import Link, chain
from gpudiag.waits.graph import Cause
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


class Terminal(Struct, frozen=True, kw_only=True):
    """One terminal thread: the end of a chain of waits."""

    cause: Cause
    node: Node
    pid: int
    tid: int
    process: Process
    member: Member | None
    motion: Motion


def terminals(picture: Picture) -> Iterator[Terminal]:
    """Causes that are one living, not stopped thread, most blamed first."""
    for cause in picture.causes:
        target = cause.nodes[0]
        pid, tid = node.pid_of(target), node.tid_of(target)
        if cause.cyclic or pid is None or tid is None or (process := picture.index.by_pid.get(pid)) is None:
            continue
        yield Terminal(
            cause=cause,
            node=target,
            pid=pid,
            tid=tid,
            process=process,
            member=picture.server.member(pid),
            motion=picture.motion(pid, tid),
        )


def global_rank(rank: Rank, server: Server) -> int | None:
    """See Server.global_rank."""
    return server.global_rank(rank)


def label(picture: Picture, target: Node) -> str:
    """What a person calls a node: `rank 2`, `engine-core`, `pid 4711 (nvcc)`, a path."""
    member = picture.member_of(target)
    if member is not None and member.ranked:
        return f"rank {global_rank(member.rank, picture.server)}"
    gone = next((g for g in picture.lost if g.node == target), None)
    if gone is not None and (number := global_rank(gone.rank, picture.server)) is not None:
        return f"rank {number}"
    pid = node.pid_of(target)
    if pid is None:
        return _device_label(picture, target) or node.path_of(target) or target
    if member is not None and member.role not in ("helper", "dead", "root"):
        return f"the {member.role} (pid {pid})"
    process = picture.index.by_pid.get(pid)
    return f"pid {pid} ({process.title.split(' ')[0].rsplit('/', 1)[-1][:32]})" if process else f"pid {pid}"


def _device_label(picture: Picture, target: Node) -> str | None:
    """`the kernel on GPU 1`."""
    device = next((d for d in picture.devices.values() if d.node == target), None)
    return f"the kernel on GPU {device.gpu.index}" if device is not None else None


def frame_of(picture: Picture, target: Node) -> Frame | None:
    """The frame to look at: of the thread, or of the main thread of a process."""
    pid = node.pid_of(target)
    if pid is None:
        return None
    stack = picture.stack(pid, node.tid_of(target) or pid)
    return telling_frame(stack) if stack else None


def culprit(picture: Picture, target: Node, *, path: str | None = None, frame: Frame | None = None) -> Culprit:
    member = picture.member_of(target)
    gone = next((g for g in picture.lost if g.node == target), None)
    rank = member.rank if member is not None and member.ranked else gone.rank if gone is not None else Rank()
    shown = frame or frame_of(picture, target)
    pid = node.pid_of(target)
    return Culprit(
        node=target,
        pid=pid,
        tid=node.tid_of(target) or pid,
        rank=global_rank(rank, picture.server) if rank != Rank() else None,
        file=shown.file if shown else None,
        line=shown.line if shown else None,
        function=shown.function if shown else None,
        path=path or node.path_of(target),
    )


def consequences(picture: Picture, cause: Cause) -> tuple[Consequence, ...]:
    """Who waits for the cause, in words; helper threads are left out."""
    found = []
    for waiter in cause.waiters:
        pid, tid = node.pid_of(waiter), node.tid_of(waiter)
        member = picture.member_of(waiter)
        if member is None or (member.ranked and tid != pid) or member.role in ("tracker", "helper"):
            continue
        frame = frame_of(picture, waiter)
        holders = sorted({label(picture, e.holder) for e in picture.edges_from(waiter)})
        where = f" in {frame.where}" if frame else ""
        found.append(Consequence(node=waiter, title=f"{label(picture, waiter)} waits for {', '.join(holders)}{where}"))
    return tuple(found)


def waited_for(picture: Picture, cause: Cause) -> list[Link]:
    """That somebody waits for the cause: one edge is enough, and it needs all of its own evidence. The best edge speaks."""
    into = [e for target in cause.nodes for e in picture.edges_to(target) if e.waiter not in cause.nodes or cause.cyclic]
    if not into:
        return []
    best = max(into, key=lambda e: CONFIDENCE_ORDER[chain([(one,) for one in e.wait.evidence])])
    return [(one,) for one in best.wait.evidence]


def all_waits(picture: Picture, cause: Cause) -> tuple[Evidence, ...]:
    """The evidence of every edge that ends at the cause, at most eight pieces, for notes."""
    found = [
        one for target in cause.nodes for e in picture.edges_to(target) if e.waiter not in cause.nodes for one in e.wait.evidence
    ]
    return tuple(dict.fromkeys(found))[:8]


def standing(picture: Picture, pid: int, tid: int) -> tuple[Evidence, ...]:
    """Where a thread stands: its frame, and the system call it sleeps in."""
    found = []
    stack = picture.stack(pid, tid)
    frame = telling_frame(stack) if stack else None
    if stack is not None and frame is not None:
        inner = stack.frames[0]
        inside = f" (inside {inner.where})" if inner is not frame else ""
        found.append(
            Evidence(
                source="python-stack",
                claim=f"thread {tid} of pid {pid} stands in {frame.where}",
                excerpt=f"{frame.where}{inside}",
                at=picture.at,
            )
        )
    call = picture.index.syscall(pid, tid)
    if call is not None:
        found.append(
            Evidence(
                source="system-call", claim=f"thread {tid} of pid {pid} sleeps in {call.name}", excerpt=_call(call), at=picture.at
            )
        )
    return tuple(found)


def still(picture: Picture, pid: int, tid: int) -> Link | None:
    """The link 'it did not move', or None if nothing supports it."""
    evidence = picture.still_evidence(pid, tid)
    return (evidence,) if evidence is not None else None


def _call(call: Syscall) -> str:
    return f"{call.name}({', '.join(hex(a) for a in call.args[:4])})"


def waiting(picture: Picture, cause: Cause, besides: Sequence[Node] = ()) -> str:
    """`3 ranks wait for it`, or who else does; `besides` are the nodes that the sentence has named already."""
    named = {node.pid_of(n) for n in besides}
    ranks = [m for m in picture.waiting_ranks(cause) if m.pid not in named]
    requests = picture.demand.requests
    parts = [f"{len(ranks)} rank{'s' if len(ranks) != 1 else ''}"] if ranks else []
    if requests:
        parts.append(f"{requests} request{'s' if requests != 1 else ''}")
    if not parts:
        others = len({node.pid_of(w) for w in cause.waiters} - named)
        parts = [f"{others} process{'es' if others != 1 else ''}"]
    single = len(parts) == 1 and parts[0].startswith("1 ")
    return f"{' and '.join(parts)} wait{'s' if single else ''} for it"


def stacks_readable(process: Process) -> bool:
    return isinstance(process.stacks, Ok)


def functions(frames: Sequence[Frame], limit: int = 12) -> str:
    return " < ".join(f.where for f in frames[:limit])
