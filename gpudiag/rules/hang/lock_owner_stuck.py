"""GPD326: a thread holds a lock that others want, and is itself stuck somewhere else."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Evidence, Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.compile_in_progress import compilers_below
from gpudiag.rules.hang.standing import (
    at_rest,
    consequences,
    culprit,
    label,
    outsider,
    standing,
    terminals,
    waited_for,
    waiting,
)
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    yield from _outside(picture)
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


def _outside(picture: Picture) -> Iterator[Finding]:
    """Another server on the host has the lock of a cache that both use. What it does is for a look at that one to say.

    One that runs, or has a compiler, is left to GPD314 or to no code at all: it works.
    """
    for cause in picture.causes:
        holder = outsider(picture, cause)
        if holder is None or holder.state == "R" or compilers_below(picture, holder):
            continue
        unseen = Evidence(source="absence", claim=f"what pid {holder.pid} does was not looked at", at=picture.at)
        yield finding(
            RULE.code,
            RULE.name,
            "warning",
            title=f"{label(picture, cause.nodes[0])}, no part of this server, holds a file lock; {waiting(picture, cause)}",
            links=(*waited_for(picture, cause), (unseen,)),
            culprits=(culprit(picture, cause.nodes[0]),),
            consequences=consequences(picture, cause),
            next_steps=(f"see why it does not let go of it: `gpudiag attach {holder.pid}`",),
        )


RULE = Rule(code="GPD326", name="lock-owner-stuck", severity="error", evaluate=evaluate, specificity=60)
