"""GPD327: ranks took different branches and now wait in different collectives."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule
from gpudiag.rules.hang.collective_mismatch import mismatches, report, same_way
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause, groups in mismatches(picture):
        if not same_way(picture, groups):
            yield from report(picture, cause, groups, RULE, "ranks took different branches")


RULE = Rule(code="GPD327", name="ranks-diverged", severity="error", evaluate=evaluate, specificity=80)
