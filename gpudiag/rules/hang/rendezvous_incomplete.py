"""GPD308: ranks wait in the rendezvous for a rank that never joined."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, waited_for, waiting
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        target = cause.nodes[0]
        into = [e for e in picture.edges_to(target) if e.wait.kind == "store"]
        if cause.cyclic or not into:
            continue
        pid, tid = node.pid_of(target), node.tid_of(target)
        links: list[Link] = [waited_for(picture, cause)]
        if pid is not None and tid is not None:
            if picture.motion(pid, tid) in (Motion.MOVING, Motion.SPINNING):
                continue
            links.append(standing(picture, pid, tid) or waited_for(picture, cause))
        waiter = into[0].waiter
        moved = picture.still_evidence(node.pid_of(waiter) or 0, node.tid_of(waiter) or 0)
        if moved is None:
            continue
        links.append((moved,))
        names = _absent(picture, target)
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{names} never joined the rendezvous; {waiting(picture, cause)}",
            links=links,
            culprits=(culprit(picture, target),),
            consequences=consequences(picture, cause),
            notes=_addresses(picture),
            next_steps=(
                f"find out why {names} is not there: its process, its log, its host",
                "check that every host uses the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and that the port is reachable",
            ),
        )


def _absent(picture: Picture, target: str) -> str:
    if target.startswith("rank:"):
        return f"rank {target.rpartition(':')[2]}"
    return label(picture, target)


def _addresses(picture: Picture) -> tuple[Evidence, ...]:
    for _, process in picture.members():
        env = process.environ.value if isinstance(process.environ, Ok) else {}
        if "MASTER_ADDR" in env:
            text = " ".join(f"{k}={env[k]}" for k in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE") if k in env)
            return (Evidence(source="environment", claim="the rendezvous of this group", excerpt=text, at=picture.at),)
    return ()


RULE = Rule(code="GPD308", name="rendezvous-incomplete", severity="error", evaluate=evaluate, specificity=78)
