"""GPD606: acceptance is low from the first position and falls, as of a drafter that knows target or text too little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.speculation import Measurement
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.speculation.context_too_short import falls_with_context
from gpudiag.rules.speculation.standing import CONTROL, counted, is_greedy, is_mixed, percent

_ACROSS: Final = 0.5


def evaluate(m: Measurement) -> Iterator[Finding]:
    if m.shape != "fades" or m.acceptance is None or not is_greedy(m) or is_mixed(m) or falls_with_context(m) is not None:
        return
    shares = ", ".join(percent(c.value) for c in m.acceptance.conditional)
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"{shares} of the drafts are right by position: an under-trained drafter, another target version or domain",
        links=[
            [counted(m)],
            [Evidence(source="signature", claim="as after 5,000 samples: 36, 28, 23 %; well trained, at home: 60 to 80 %")],
        ],
        notes=_by_domain(m),
        next_steps=(
            CONTROL,
            "gpudiag drafter measure with --prompts of your own traffic, and of what the drafter was trained on",
            "gpudiag drafter replay tells a weak drafter from a faulty integration",
        ),
    )


def _by_domain(m: Measurement) -> list[Evidence]:
    if not m.domains or min(d.length for d in m.domains) - 1 > _ACROSS * (max(d.length for d in m.domains) - 1):
        return []
    told = ", ".join(f"{d.domain} {d.length:.2f}" for d in m.domains)
    return [Evidence(source="speculation-counts", claim=f"it depends on the domain: {told}")]


RULE: Final = Rule(code="GPD606", name="drafter-undertrained-or-off-domain", severity="warning", evaluate=evaluate)
