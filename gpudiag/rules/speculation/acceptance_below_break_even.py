"""GPD601: fewer tokens are accepted in a round than the round costs, and a better drafter could change that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.speculation import Measurement
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.speculation.standing import (
    BEST_EACH,
    GOOD_EACH,
    by_hand,
    counted,
    is_mixed,
    meanwhile,
    needed,
    sentence,
    standing,
    timed,
)


def evaluate(m: Measurement) -> Iterator[Finding]:
    cost = m.cost
    if cost is None or not m.steps or by_hand(m) or is_mixed(m) or standing(m) != "below":
        return
    each = cost.break_even_each
    if each is None or each > BEST_EACH:
        # GPD607 says it: no drafter would win.
        return
    dear = each > GOOD_EACH
    why = "only one of the best drafters would win here, for the round is dear too" if dear else "the drafter is the limit"
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"{sentence(m)}: {why}",
        links=[[counted(m)], [timed(m)]],
        notes=[Evidence(source="signature", claim=f"break-even is at {needed(cost, m.steps)}; good drafters reach 60 to 80 %")],
        next_steps=(
            "gpudiag drafter check DRAFT --target DIR: do its files fit what the engine will feed it?",
            meanwhile(m),
        ),
    )


RULE: Final = Rule(code="GPD601", name="acceptance-below-break-even", severity="warning", evaluate=evaluate)
