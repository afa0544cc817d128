"""GPD308: ranks wait in the rendezvous for a rank that never joined."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, still, waited_for, waiting
from gpudiag.waits.graph import Cause
from gpudiag.waits.motion import BUSY
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    open_causes = [
        c for c in picture.causes if not c.cyclic and any(e.wait.kind == "store" for n in c.nodes for e in picture.edges_to(n))
    ]
    # A rank that is still on its way (it imports, it loads) has not failed to come; one that is stopped may have come.
    absent = [c for c in open_causes if not picture.any_motion(c.nodes, BUSY) and not _stopped(picture, c)]
    if not absent:
        return
    waiter = next(e.waiter for e in picture.edges_to(absent[0].nodes[0]) if e.wait.kind == "store")
    moved = still(picture, waiter)
    if moved is None:
        return
    here = [c.nodes[0] for c in absent if node.pid_of(c.nodes[0]) is not None or c.nodes[0] in {g.node for g in picture.lost}]
    elsewhere = [c.nodes[0] for c in absent if c.nodes[0] not in here]
    links: list[Link] = [*waited_for(picture, absent[0]), moved]
    links += [standing(picture, n) for n in here[:1]]
    if not here:
        claim = "whether they joined from another host is not visible from this one"
        links.append((Evidence(source="absence", claim=claim, at=picture.at),))
    names = _names(picture, here or elsewhere)
    said = "never joined the rendezvous" if here else "not on this host: the rendezvous waits for what may never have joined"
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"{names} {said}; {waiting(picture, absent[0])}",
        links=links,
        culprits=tuple(culprit(picture, n) for n in (here or elsewhere)[:8]),
        consequences=consequences(picture, absent[0]),
        notes=_addresses(picture),
        next_steps=(
            f"find out why {names} {'is' if len(here or elsewhere) == 1 else 'are'} not there: process, log, host",
            "check that every host uses the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and that the port is reachable",
        ),
    )


def _stopped(picture: Picture, cause: Cause) -> bool:
    return any((pid := node.pid_of(n)) is not None and picture.index.stopped(pid) for n in cause.nodes)


def _names(picture: Picture, nodes: list[str]) -> str:
    names = [f"rank {n.rpartition(':')[2]}" if n.startswith("rank:") else label(picture, n) for n in nodes]
    if len(names) == 1:
        return names[0]
    shown = ", ".join(n.removeprefix("rank ") for n in names[:8])
    return f"ranks {shown}{' ...' if len(names) > 8 else ''}"


def _addresses(picture: Picture) -> tuple[Evidence, ...]:
    for _, process in picture.members():
        env = process.environ.value if isinstance(process.environ, Ok) else {}
        if "MASTER_ADDR" in env:
            text = " ".join(f"{k}={env[k]}" for k in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE") if k in env)
            return (Evidence(source="environment", claim="the rendezvous of this group", excerpt=text, at=picture.at),)
    return ()


RULE = Rule(code="GPD308", name="rendezvous-incomplete", severity="error", evaluate=evaluate, specificity=78)
