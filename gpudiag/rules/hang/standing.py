"""How rules speak of nodes: labels, culprits, consequences, and the questions they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from gpudiag.engines.frames import telling_frame
from gpudiag.model import node
from gpudiag.model.finding import CONFIDENCE_ORDER, Consequence, Culprit, Evidence
from gpudiag.model.node import Node
from gpudiag.model.process import GONE, STOPPED, Process, Syscall
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member, Rank
from gpudiag.model.stack import Frame
from gpudiag.rules.confidence import Link, chain
from gpudiag.rules.preflight.words import plural
from gpudiag.waits.graph import Cause
from gpudiag.waits.motion import BUSY, Motion
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
        if not cause.cyclic and (end := terminal(picture, cause, cause.nodes[0])) is not None:
            yield end


def terminal(picture: Picture, cause: Cause, target: Node) -> Terminal | None:
    """A thread as the end of a chain of waits; None for a node that is no thread, or whose process is not there."""
    pid, tid = node.pid_of(target), node.tid_of(target)
    if pid is None or tid is None or (process := picture.index.by_pid.get(pid)) is None:
        return None
    return Terminal(
        cause=cause,
        node=target,
        pid=pid,
        tid=tid,
        process=process,
        member=picture.server.member(pid),
        motion=picture.motion(pid, tid),
    )


def outsider(picture: Picture, cause: Cause) -> Process | None:
    """The process that has a file lock which the server waits for, where it is alive and no part of the server."""
    pid = node.pid_of(cause.nodes[0])
    process = picture.index.by_pid.get(pid) if pid is not None else None
    if process is None or picture.server.member(process.pid) is not None or process.state in (*GONE, *STOPPED):
        return None
    return process if any(e.wait.kind == "file-lock" for e in picture.edges_to(cause.nodes[0])) else None


def at_rest(picture: Picture, ends: Iterable[Terminal]) -> Iterator[tuple[Terminal, Link]]:
    """Those that slept at one place through all looks, each with the evidence for it; none with one look only."""
    for end in ends:
        moved = still(picture, end.node)
        if moved is not None and end.motion not in BUSY:
            yield end, moved


def label(picture: Picture, target: Node) -> str:
    """What a person calls a node: `rank 2`, `engine-core`, `pid 4711 (nvcc)`, a path."""
    member = picture.member_of(target)
    number = picture.server.global_rank(member.rank) if member is not None else None
    if number is not None:
        return f"rank {number}"
    gone = next((g for g in picture.lost if g.node == target), None)
    lost = picture.server.global_rank(gone.rank) if gone is not None else None
    if lost is not None:
        return f"rank {lost}"
    pid = node.pid_of(target)
    if pid is None:
        lock = "a lock that no thread is seen to hold" if target.startswith("lock:") else None
        return lock or _device_label(picture, target) or node.path_of(target) or target
    if member is not None and member.role == "starting":
        return f"a process that is starting (pid {pid})"
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
        rank=picture.server.global_rank(rank) if rank != Rank() else None,
        file=shown.file if shown else None,
        line=shown.line if shown else None,
        function=shown.function if shown else None,
        path=path or node.path_of(target),
    )


def consequences(picture: Picture, cause: Cause | None) -> tuple[Consequence, ...]:
    """Who waits for the cause, in words; helper threads are left out. None for what nobody waits for."""
    found = []
    for waiter in cause.waiters if cause is not None else ():
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


def standing(picture: Picture, target: Node) -> tuple[Evidence, ...]:
    """Where a thread stands: its frame, and the system call it sleeps in. Nothing for a node that is no thread."""
    pid, tid = node.pid_of(target), node.tid_of(target)
    if pid is None or tid is None:
        return ()
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


def still(picture: Picture, target: Node) -> Link | None:
    """The link 'it did not move', or None if nothing supports it or the node is no thread."""
    pid, tid = node.pid_of(target), node.tid_of(target)
    evidence = picture.still_evidence(pid, tid) if pid is not None and tid is not None else None
    return (evidence,) if evidence is not None else None


def all_still(picture: Picture, targets: Iterable[Node]) -> list[Link] | None:
    """'It did not move' of each node, or None if that cannot be said of every one."""
    found = []
    for target in targets:
        moved = still(picture, target)
        if moved is None:
            return None
        found.append(moved)
    return found


def all_listen(picture: Picture, cause: Cause) -> bool:
    """Whether a cycle is processes that each wait to hear from the next, and not all of them ranks: a message was lost."""
    inside = picture.edges_within(cause)
    if not inside or not all(e.mode == "read" and e.wait.kind in ("ipc", "socket", "child") for e in inside):
        return False
    return not all((member := picture.member_of(n)) is not None and member.ranked for n in cause.nodes)


def _call(call: Syscall) -> str:
    return f"{call.name}({', '.join(hex(a) for a in call.args[:4])})"


def waiting(picture: Picture, cause: Cause, besides: Sequence[Node] = ()) -> str:
    """`3 ranks wait for it`, or who else does; `besides` are the nodes that the sentence has named already."""
    named = {node.pid_of(n) for n in besides}
    ranks = [m for m in picture.waiting_ranks(cause) if m.pid not in named]
    requests = picture.demand.requests
    parts = [plural(len(ranks), "rank")] if ranks else []
    if requests:
        parts.append(plural(requests, "request"))
    if not parts:
        parts = [plural(len({node.pid_of(w) for w in cause.waiters} - named), "process", "processes")]
    single = len(parts) == 1 and parts[0].startswith("1 ")
    return f"{' and '.join(parts)} wait{'s' if single else ''} for it"


def stacks_readable(process: Process) -> bool:
    return isinstance(process.stacks, Ok)
