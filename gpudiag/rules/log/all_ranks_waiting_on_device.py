"""GPD311: every rank launched the same operation and none finished it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.order import standings
from gpudiag.rules.log.ranks import names, rank_culprit, stack_notes

CODE: Final = "GPD311"
NAME: Final = "all-ranks-waiting-on-device"


def _evaluate(case: LogCase) -> Iterable[Finding]:
    if case.failure.kind != "hang":
        return
    facts = case.facts
    for standing in standings(facts):
        complete = len(standing.enqueued) >= max(2, len(standing.members))
        if standing.behind or standing.absent or not complete or not standing.waiting:
            continue
        ranks = sorted(standing.enqueued)
        yield finding(
            CODE,
            NAME,
            "error",
            title=(
                f"{names(ranks)} all launched the same operations and none of them "
                "ended: the GPUs hold each other up, or one kernel does not return"
            ),
            links=[list(standing.evidence)],
            next_steps=[
                "dmesg -T | grep -iE 'xid|nvlink|iommu' | tail",
                (
                    "NCCL_P2P_DISABLE=1 as an experiment: if that helps, the "
                    "path between the GPUs is broken (it is not yet the cause)"
                ),
                "`gpudiag attach --kernel-dump` on a server that was armed for it, or cuda-gdb, names the kernel",
            ],
            culprits=[rank_culprit(facts, r) for r in ranks[:16]],
            notes=stack_notes(facts, tuple(ranks)),
        )
        return


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=45, evaluate=_evaluate)
