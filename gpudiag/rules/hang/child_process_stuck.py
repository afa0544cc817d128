"""GPD320: everybody waits for a child process (a tool, a subprocess) that does nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import Terminal, consequences, culprit, label, standing, still, terminals, waited_for, waiting
from gpudiag.waits.graph import Cause
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end in (*terminals(picture), *_dead_ends(picture)):
        moved = still(picture, end.pid, end.tid)
        if moved is None or end.motion in (Motion.MOVING, Motion.SPINNING) or not _is_tool(picture, end):
            continue
        where = standing(picture, end.pid, end.tid)
        links: list[Link] = [*waited_for(picture, end.cause), moved]
        links += [where] if where else []
        if not picture.edges_to(end.node):
            continue
        into = picture.edges_to(end.node)[0]
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, into.waiter)} waits for its child pid {end.pid}, which does nothing; {waiting(picture, end.cause)}",
            links=links,
            culprits=(culprit(picture, end.node), culprit(picture, into.waiter)),
            consequences=consequences(picture, end.cause),
            next_steps=(
                f"see what the child waits for: `cat /proc/{end.pid}/cmdline | tr '\\0' ' '; cat /proc/{end.pid}/wchan; ls -l /proc/{end.pid}/fd`",
                f"ending the child (`kill {end.pid}`) lets its parent go on, usually with an error that says more",
            ),
        )


def _dead_ends(picture: Picture) -> Iterator[Terminal]:
    """Children that wait for a pipe, file or lock that leads to nobody: the wait ends with them."""
    for cause in picture.causes:
        target = cause.nodes[0]
        if node.pid_of(target) is not None or not (into := picture.edges_to(target)):
            continue
        waiter = into[0].waiter
        pid, tid = node.pid_of(waiter), node.tid_of(waiter)
        process = picture.index.by_pid.get(pid) if pid is not None else None
        if pid is None or tid is None or process is None:
            continue
        shorter = Cause(
            nodes=(waiter,), cyclic=False, waiters=tuple(w for w in cause.waiters if w != waiter), weight=cause.weight
        )
        yield Terminal(
            cause=shorter,
            node=waiter,
            pid=pid,
            tid=tid,
            process=process,
            member=picture.server.member(pid),
            motion=picture.motion(pid, tid),
        )


def _is_tool(picture: Picture, end: Terminal) -> bool:
    """Whether it is a child somebody waits for, and not a worker of the server itself."""
    if end.member is not None and end.member.ranked:
        return False
    return any(
        e.mode == "child" or (e.wait.kind == "ipc" and _parent(picture, end.pid) == e.waiter.split("/")[0])
        for e in picture.edges_to(end.node)
    )


def _parent(picture: Picture, pid: int) -> str:
    process = picture.index.by_pid.get(pid)
    return f"pid:{process.ppid}" if process is not None else ""


RULE = Rule(code="GPD320", name="child-process-stuck", severity="error", evaluate=evaluate, specificity=65)
