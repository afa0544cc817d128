"""GPD326: a thread holds a lock that others want, and is itself stuck somewhere else."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, still, terminals, waited_for, waiting
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end in terminals(picture):
        into = [e for e in picture.edges_to(end.node) if e.wait.kind in ("lock", "file-lock")]
        moved = still(picture, end.pid, end.tid)
        if not into or moved is None or end.motion in (Motion.MOVING, Motion.SPINNING):
            continue
        where = standing(picture, end.pid, end.tid)
        links: list[Link] = [*waited_for(picture, end.cause), moved]
        links += [where] if where else []
        what = "a file lock" if into[0].wait.kind == "file-lock" else "a lock"
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, end.node)} holds {what} and is stuck elsewhere (thread {end.tid}); {waiting(picture, end.cause)}",
            links=links,
            culprits=(culprit(picture, end.node),),
            consequences=consequences(picture, end.cause),
            next_steps=("look at the line where the holder stands: it does slow or blocking work while it holds the lock",),
        )


RULE = Rule(code="GPD326", name="lock-owner-stuck", severity="error", evaluate=evaluate, specificity=60)
