"""GPD326: a thread holds a lock that others want, and is itself stuck somewhere else."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import at_rest, consequences, culprit, label, standing, terminals, waited_for, waiting
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end, moved in at_rest(picture, terminals(picture)):
        into = [e for e in picture.edges_to(end.node) if e.wait.kind in ("lock", "file-lock")]
        if not into:
            continue
        what = "a file lock" if into[0].wait.kind == "file-lock" else "a lock"
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, end.node)} holds {what} and is stuck elsewhere (thread {end.tid});"
            f" {waiting(picture, end.cause)}",
            links=(*waited_for(picture, end.cause), moved, standing(picture, end.node)),
            culprits=(culprit(picture, end.node),),
            consequences=consequences(picture, end.cause),
            next_steps=("look at the line where the holder stands: it does slow or blocking work while it holds the lock",),
        )


RULE = Rule(code="GPD326", name="lock-owner-stuck", severity="error", evaluate=evaluate, specificity=60)
