"""GPD303: two ranks take two communicators in opposite order, each waiting in the one for the other."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule
from gpudiag.rules.hang.counts import conflicts, report
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for conflict in conflicts(picture):
        if conflict.inside_one_communicator:
            continue
        steps = (
            "issue the collectives of both groups in the same order on every rank, or put them on one stream",
            "compare the lines where the ranks stand: one took the other group first",
        )
        found = report(picture, conflict, RULE, "ranks take two communicators in opposite order", steps)
        if found is not None:
            yield found


RULE = Rule(code="GPD303", name="collectives-cross-ordered", severity="error", evaluate=evaluate, specificity=82)
