"""GPD608: the first draft is right as often as it should be, the ones after it are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.speculation import Measurement
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.speculation.standing import counted, is_greedy, is_mixed, percent


def evaluate(m: Measurement) -> Iterator[Finding]:
    if m.shape != "collapses" or m.acceptance is None or not is_greedy(m) or is_mixed(m):
        return
    first, second = (c.value for c in m.acceptance.conditional[:2])
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"The first draft is right {percent(first)} of the time, the second only {percent(second)} where the first was",
        links=[
            [counted(m)],
            [
                Evidence(
                    source="signature",
                    claim="feedback after instead of before the norm gives 53, 28, 18 %; healthy is even",
                )
            ],
        ],
        next_steps=(
            "gpudiag drafter check DRAFT --target DIR: norm_output and what the engine makes of it",
            "gpudiag drafter replay names the fault that gives these numbers",
            "serve 1 step meanwhile: the first draft is fine",
        ),
    )


RULE: Final = Rule(code="GPD608", name="drafter-feedback-mismatch", severity="warning", evaluate=evaluate)
