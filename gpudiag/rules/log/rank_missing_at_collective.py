"""GPD301: some ranks wait in a collective that others have not launched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Consequence, Evidence, Finding
from gpudiag.model.node import rank
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import dump_evidence
from gpudiag.rules.log.order import standings
from gpudiag.rules.log.ranks import names, rank_culprit, stack_notes
from gpudiag.rules.log.stacks import by_rank, waiting_frame

CODE: Final = "GPD301"
NAME: Final = "rank-missing-at-collective"


def _evaluate(case: LogCase) -> Iterable[Finding]:
    if case.failure.kind != "hang":
        return
    for standing in standings(case.facts):
        late = standing.behind or standing.absent
        if not late or len(late) >= len(standing.members):
            continue
        ahead = sorted(set(standing.enqueued) - set(late))
        did = "has not launched" if standing.behind else "said nothing, while others timed out in"
        yield finding(
            CODE,
            NAME,
            "error",
            title=f"{names(late)} {did} {standing.describe()}, in which {names(ahead)} wait" + ("s" if len(ahead) == 1 else ""),
            links=[list(standing.evidence)],
            next_steps=[
                f"look at {names(late)}: its stack, its own log, the kernel's log of its host",
                "py-spy dump --nonblocking --pid PID, or gpudiag attach, if it still lives",
                "a stack dump of that rank beside these logs is read too",
            ],
            culprits=[rank_culprit(case.facts, r) for r in late],
            notes=stack_notes(case.facts, late),
            consequences=[
                Consequence(node=rank("global", r), title=f"rank {r} waits in {standing.describe()}") for r in ahead[:16]
            ],
        )
        return
    yield from _by_stacks(case)


def _by_stacks(case: LogCase) -> Iterable[Finding]:
    """Without counts: all ranks with a stack stand in a collective, and one or a few do not."""
    stacks = by_rank(case.facts)
    waits = {index: frame for index, dump in stacks.items() if (frame := waiting_frame(dump)) is not None}
    late = sorted(set(stacks) - set(waits))
    if not waits or not late or len(late) > len(waits):
        return
    operation = next(iter(waits.values())).function.rpartition(".")[2]
    ahead = sorted(waits)
    reads_alike = Evidence(source="source-text", claim=f"{names(late)} stood outside the collective in one look")
    yield finding(
        CODE,
        NAME,
        "error",
        title=f"{names(late)} is not in the {operation} in which {names(ahead)} stand" + ("s" if len(ahead) == 1 else ""),
        links=[[dump_evidence(case.facts, stacks[i], f"rank {i} waits") for i in ahead[:8]], [reads_alike]],
        next_steps=[
            "dump again after 10 s: a frame that changed is progress, one that did not is where it hangs",
            f"look at {names(late)}: where it stands is shown below",
        ],
        culprits=[rank_culprit(case.facts, r) for r in late[:16]],
        notes=stack_notes(case.facts, late),
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=50, evaluate=_evaluate)
