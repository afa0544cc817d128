"""GPD322: a thread waits for an event, a future or a lock that no thread is going to set or release."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.node import Node
from gpudiag.model.reading import Ok
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import (
    at_rest,
    consequences,
    culprit,
    frame_of,
    label,
    stacks_readable,
    standing,
    still,
    terminals,
    waiting,
)
from gpudiag.waits.motion import BUSY, Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    yield from _events(picture)
    yield from _locks(picture)


def _events(picture: Picture) -> Iterator[Finding]:
    for end, moved in at_rest(picture, terminals(picture)):
        known = picture.known(end.pid, end.tid)
        if known is None or known.kind != "event" or known.need == "work" or end.motion is not Motion.FROZEN:
            continue
        others = [t.tid for t in end.process.threads if t.tid != end.tid]
        if any(picture.motion(end.pid, tid) in BUSY for tid in others) or not stacks_readable(end.process):
            continue
        if any(
            e.wait.need == "reply" and node.pid_of(e.holder) != end.pid
            for t in others
            for e in picture.edges_from(node.thread(end.pid, t))
        ):
            # A thread that waits for an answer from elsewhere may set it once that has come.
            continue
        nobody = Evidence(
            source="absence",
            claim=f"none of the {len(others)} other threads of pid {end.pid} does anything that could end this wait",
            at=picture.at,
        )
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, end.node)} waits{_where(picture, end.node)} for something nobody will do;"
            f" {waiting(picture, end.cause)}",
            links=(standing(picture, end.node), moved, (nobody,)),
            culprits=(culprit(picture, end.node),),
            consequences=consequences(picture, end.cause),
            next_steps=(
                "look at the line above: who should set it, and which exception or early return kept it from doing so",
                "search the log for an exception in a thread or callback of this process before the hang",
            ),
        )


def _where(picture: Picture, target: Node) -> str:
    frame = frame_of(picture, target)
    return f" in {frame.function}" if frame else ""


def _locks(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        target = cause.nodes[0]
        if not target.startswith("lock:"):
            continue
        edge = picture.edges_to(target)[0]
        moved = still(picture, edge.waiter)
        if moved is None or _may_be_released(picture, edge.waiter):
            continue
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, edge.waiter)} waits for a lock that no thread seems to hold; {waiting(picture, cause)}",
            links=(edge.wait.evidence[:1], edge.wait.evidence[1:], moved),
            culprits=(culprit(picture, edge.waiter),),
            subjects=(edge.waiter, target),
            consequences=consequences(picture, cause),
            next_steps=(
                "look for an acquire() without release() on some path: an exception, an early return, a thread that ended",
            ),
        )


def _may_be_released(picture: Picture, waiter: Node) -> bool:
    """Whether another thread is at work in the very file that waits: it may release the lock when it is done there."""
    pid, tid = node.pid_of(waiter) or 0, node.tid_of(waiter)
    frame = frame_of(picture, waiter)
    process = picture.index.by_pid.get(pid)
    stacks = process.stacks.value if process is not None and isinstance(process.stacks, Ok) else ()
    return frame is not None and any(
        s.tid != tid and picture.known(pid, s.tid) is None and any(f.file == frame.file for f in s.frames) for s in stacks
    )


RULE = Rule(code="GPD322", name="wait-without-owner", severity="error", evaluate=evaluate, specificity=58)
