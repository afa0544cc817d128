"""GPD309: a process waits on a queue, pipe or socket that nobody will ever write to (or read from) again."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.process import GONE
from gpudiag.model.reading import Ok
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, waiting
from gpudiag.waits.context import Edge
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        path = node.path_of(cause.nodes[0]) or ""
        if not path.startswith(("pipe:[", "socket:[")):
            continue
        edge = picture.edges_to(cause.nodes[0])[0]
        links = _links(picture, path, edge)
        if links is None:
            continue
        pid = node.pid_of(edge.waiter) or 0
        tid = node.tid_of(edge.waiter) or pid
        what = "pipe" if path.startswith("pipe") else "socket"
        others = f"; {waiting(picture, cause)}" if picture.waiting_ranks(cause) else ""
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, edge.waiter)} waits on a {what} whose other side is dead{others}",
            links=links,
            culprits=(culprit(picture, edge.waiter),),
            subjects=(edge.waiter, cause.nodes[0]),
            consequences=consequences(picture, cause),
            notes=standing(picture, pid, tid),
            next_steps=(
                "look in the log for how the process at the other end died; that is the first cause",
                "restart the server: this wait cannot end",
            ),
        )


def _links(picture: Picture, path: str, edge: Edge) -> list[Link] | None:
    """Nobody else has the far end: proven. Others have it but cannot be the peer, and a process died: by elimination."""
    waiter = node.pid_of(edge.waiter)
    inode = int(path.partition("[")[2].rstrip("]") or 0)
    held = picture.index.holders.get(inode, ())
    far = {p for p, f in held if (f.writable if edge.mode == "read" else f.readable)}
    others = far - {waiter} if waiter is not None else far
    if not others:
        return [edge.wait.evidence] if _all_readable(picture) else None
    dead = [p for p in picture.observation.last.processes if p.state in GONE and (p.ppid == waiter or p.ppid == picture.server.root_pid)]
    if not dead or any(picture.motion(p, p).value in ("moving", "spinning") for p in others):
        return None
    died = Evidence(
        source="process-state",
        claim=f"pid {dead[0].pid} ({dead[0].name}), a child of pid {dead[0].ppid}, is dead",
        excerpt=f"state {dead[0].state}",
        at=picture.at,
    )
    eliminated = Evidence(
        source="elimination",
        claim=f"whoever else has the far end open ({', '.join(f'pid {p}' for p in sorted(others))}) has both ends and does not move: an inherited copy",
        at=picture.at,
    )
    return [edge.wait.evidence, (died,), (eliminated,)]


def _all_readable(picture: Picture) -> bool:
    """Whether every process of the server showed its descriptors: else the writer may be the one that did not."""
    return all(isinstance(p.fds, Ok) for m, p in picture.members())


RULE = Rule(code="GPD309", name="peer-process-dead", severity="error", evaluate=evaluate, specificity=80)
