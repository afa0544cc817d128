"""GPD319: a writer waits because the reader of its pipe or socket does not read."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import at_rest, consequences, culprit, label, standing, terminals, waited_for, waiting
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end, moved in at_rest(picture, terminals(picture)):
        into = [e for e in picture.edges_to(end.node) if e.mode == "write"]
        if not into:
            continue
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, into[0].waiter)} cannot write: {label(picture, end.node)} does not read;"
            f" {waiting(picture, end.cause)}",
            links=(*waited_for(picture, end.cause), moved, standing(picture, end.node)),
            culprits=(culprit(picture, end.node), culprit(picture, into[0].waiter)),
            consequences=consequences(picture, end.cause),
            next_steps=("look at the line where the reader stands: it must come back to its queue before the writer can go on",),
        )


RULE = Rule(code="GPD319", name="queue-full-reader-stuck", severity="error", evaluate=evaluate, specificity=62)
