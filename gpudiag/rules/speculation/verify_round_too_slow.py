"""GPD607: a round costs so many plain decode steps that hardly a drafter, or none, can win."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.speculation import Measurement
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.speculation.standing import BEST_EACH, GOOD_EACH, by_hand, meanwhile, needed, sentence, standing, timed


def evaluate(m: Measurement) -> Iterator[Finding]:
    cost = m.cost
    if cost is None or not m.steps or by_hand(m) or standing(m) == "above":
        return
    each = cost.break_even_each
    if each is not None and each <= GOOD_EACH:
        return
    if (each is None or each > BEST_EACH) and standing(m) == "below":
        why = "the round costs too much, no drafter of this kind can win here"
        title = f"{sentence(m)}: {why}"
    else:
        title = f"A round costs {cost.ratio.value:.2f} plain steps: to gain anything, {needed(cost, m.steps)} must be right"
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=title,
        links=[[timed(m)]],
        notes=[
            Evidence(source="signature", claim="published for three drafts: 1.3 to 2.2 plain steps; it rises with the batch"),
            Evidence(source="signature", claim=f"break-even is at {needed(cost, m.steps)}; good drafters reach 60 to 80 %"),
        ],
        next_steps=(
            meanwhile(m),
            "look at what the round waits for: CUDA graphs off, eager drafter, tensor parallel size of the drafter",
            "measure again at the concurrency that you serve: the break-even rises with it",
        ),
    )


RULE: Final = Rule(code="GPD607", name="verify-round-too-slow", severity="warning", evaluate=evaluate)
