"""GPD309: a process waits on a queue, pipe or socket that nobody will ever write to (or read from) again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.process import GONE
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, waiting
from gpudiag.waits.context import Edge
from gpudiag.waits.motion import BUSY
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
            notes=standing(picture, edge.waiter),
            next_steps=(
                "look in the log for how the process at the other end died; that is the first cause",
                "restart the server: this wait cannot end",
            ),
        )


def _links(picture: Picture, path: str, edge: Edge) -> list[Link] | None:
    """Only inherited copies of the far end are left, and a process is missing.

    If nobody at all had it, the kernel would end the wait: then somebody has it who cannot be seen from here.
    """
    waiter = node.pid_of(edge.waiter) or 0
    inode = int(path.partition("[")[2].rstrip("]") or 0)
    held = picture.index.holders.get(inode, ())
    far = {p: f.fd for p, f in held if (f.writable if edge.mode == "read" else f.readable)}
    own = {f.fd for p, f in held if p == waiter}
    gone = _missing(picture, waiter)
    if not far or gone is None or any(p != waiter and fd not in own for p, fd in far.items()):
        return None
    if any(picture.motion(p, t.tid) in BUSY for p in far for t in picture.index.by_pid[p].threads):
        return None
    eliminated = Evidence(
        source="elimination",
        claim=f"the far end is open only in {', '.join(f'pid {p}' for p in sorted(far))}, under the number it has in the process "
        "that waits: inherited copies, in processes that do not move",
        at=picture.at,
    )
    return [edge.wait.evidence, (gone,), (eliminated,)]


def _missing(picture: Picture, waiter: int) -> Evidence | None:
    """A process that should be at the other end: a dead child of the waiter, or one that every other rank still has."""
    for process in picture.observation.last.processes:
        if (
            process.state in GONE
            and process.ppid in (waiter, picture.server.root_pid)
            and process.pid not in {g.pid for g in picture.lost}
        ):
            claim = f"pid {process.pid} ({process.name}), a child of pid {process.ppid}, is dead"
            return Evidence(source="process-state", claim=claim, excerpt=f"state {process.state}", at=picture.at)
    ranks = [m.pid for m in picture.server.ranks if picture.index.alive(m.pid)]
    if waiter not in ranks or len(ranks) < 2:
        return None
    others = [_children(picture, p) for p in ranks if p != waiter]
    absent = sorted(set.intersection(*others) - _children(picture, waiter))
    if not absent:
        return None
    claim = f"every other rank has a child {absent[0]}; pid {waiter} has none"
    return Evidence(source="elimination", claim=claim, at=picture.at)


def _children(picture: Picture, pid: int) -> set[str]:
    """The kinds of living children of a process, by title without numbers and paths."""
    words = (c.title.split(" ")[0].rsplit("/", 1)[-1] for c in picture.index.children.get(pid, ()) if c.state not in GONE)
    return {re.sub(r"\d+", "N", w) for w in words if not w.startswith("python")}


RULE = Rule(code="GPD309", name="peer-process-dead", severity="error", evaluate=evaluate, specificity=80)
