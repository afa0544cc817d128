"""GPD320: everybody waits for a child process (a tool, a subprocess) that does nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import (
    Terminal,
    at_rest,
    consequences,
    culprit,
    label,
    standing,
    terminal,
    terminals,
    waited_for,
    waiting,
)
from gpudiag.waits.graph import Cause
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end, moved in at_rest(picture, (*terminals(picture), *_dead_ends(picture))):
        if not _is_tool(picture, end) or not _does_nothing(picture, end):
            continue
        into = picture.edges_to(end.node)
        waiter = next((e for e in into if e.mode == "child"), into[0]).waiter
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, waiter)} waits for its child pid {end.pid}, which does nothing;"
            f" {waiting(picture, end.cause)}",
            links=(*waited_for(picture, end.cause), moved, standing(picture, end.node)),
            culprits=(culprit(picture, end.node), culprit(picture, waiter)),
            consequences=consequences(picture, end.cause),
            next_steps=(
                (
                    f"see what the child waits for: `cat /proc/{end.pid}/cmdline | tr '\\0' ' '; cat /proc/{end.pid}/wchan;"
                    f" ls -l /proc/{end.pid}/fd`"
                ),
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
        shorter = Cause(
            nodes=(waiter,), cyclic=False, waiters=tuple(w for w in cause.waiters if w != waiter), weight=cause.weight
        )
        end = terminal(picture, shorter, waiter)
        if end is not None:
            yield end


def _does_nothing(picture: Picture, end: Terminal) -> bool:
    """It never ran; or it woke up, and its Python stack shows that it did so for nothing. A native child may do small work."""
    return end.motion is Motion.FROZEN or picture.stack(end.pid, end.tid) is not None


def _is_tool(picture: Picture, end: Terminal) -> bool:
    """Whether it is a child somebody waits for, and not a worker of the server itself."""
    if end.member is not None and end.member.ranked:
        return False
    return any(
        e.mode == "child" or (e.wait.kind == "ipc" and node.pid_of(e.waiter) == end.process.ppid)
        for e in picture.edges_to(end.node)
    )


RULE = Rule(code="GPD320", name="child-process-stuck", severity="error", evaluate=evaluate, specificity=65)
