"""GPD301: some ranks wait in a collective that others have not launched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Consequence, Finding
from gpudiag.model.node import rank
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.order import standings
from gpudiag.rules.log.ranks import names, rank_culprit, stack_notes

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


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=50, evaluate=_evaluate)
