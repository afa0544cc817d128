"""GPD303: ranks took two process groups in opposite order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.order import standings
from gpudiag.rules.log.ranks import names, rank_culprit

CODE: Final = "GPD303"
NAME: Final = "collectives-cross-ordered"


def _evaluate(case: LogCase) -> Iterable[Finding]:
    if case.failure.kind != "hang":
        return
    known = [s for s in standings(case.facts) if s.behind]
    for index, one in enumerate(known):
        for other in known[index + 1 :]:
            first, second = set(one.behind), set(other.behind)
            crossed = first & set(other.enqueued) - second and second & set(one.enqueued) - first
            if not crossed or one.group == other.group:
                continue
            ranks = sorted(first | second)
            yield finding(
                CODE,
                NAME,
                "error",
                title=(
                    f"{names(sorted(first))} waits in group {other.group} and "
                    f"{names(sorted(second))} in group {one.group}: taken in opposite order"
                ),
                links=[list(one.evidence), list(other.evidence)],
                next_steps=[
                    "give both ranks the same order of the two calls",
                    (
                        "two communicators that run at the same time need separate "
                        "streams and a fixed order (NCCL: concurrent communicators)"
                    ),
                ],
                culprits=[rank_culprit(case.facts, r) for r in ranks[:16]],
            )
            return


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=75, evaluate=_evaluate)
