"""GPD613: next to nothing is accepted at any position; no training makes a drafter that bad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.speculation import Measurement
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.speculation.standing import counted, is_greedy, is_mixed, percent


def evaluate(m: Measurement) -> Iterator[Finding]:
    if m.shape != "none" or m.acceptance is None or not is_greedy(m) or is_mixed(m):
        return
    first = m.acceptance.conditional[0].value
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"{percent(first)} of first drafts are accepted: the drafter does not get, or is not, what it was trained as",
        links=[
            [counted(m)],
            [Evidence(source="signature", claim="other layers give 4 %, random embeddings 10 %, a poor training 30 to 40 %")],
        ],
        next_steps=(
            "gpudiag drafter check DRAFT --target DIR: layers, weights that no class takes, vocabulary map, embedding",
            "SGLang: --speculative-algorithm EAGLE3, not EAGLE; vLLM: method eagle3, and the layers that its log names",
            "gpudiag drafter replay: what the same drafter accepts outside the engine",
        ),
    )


RULE: Final = Rule(code="GPD613", name="drafts-never-accepted", severity="warning", evaluate=evaluate)
