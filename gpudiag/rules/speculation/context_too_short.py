"""GPD609: drafts are accepted while the context is short and not when it is long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.speculation import Measurement, Stretch
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.speculation.standing import is_mixed, spread

LEAST_ROUNDS: Final = 50
_LEAST_LENGTH: Final = 1.25
_LEFT: Final = 0.5


def evaluate(m: Measurement) -> Iterator[Finding]:
    fall = falls_with_context(m)
    if fall is None or is_mixed(m):
        return
    short, long = fall
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"Beyond {long.since} tokens acceptance falls from {short.length.value:.2f} to {long.length.value:.2f} per round",
        links=[
            [Evidence(source="speculation-counts", claim=_told(stretch)) for stretch in m.stretches],
            [Evidence(source="signature", claim="as of a drafter trained on short samples, or of another rope scaling")],
        ],
        next_steps=(
            "compare max_position_embeddings and rope_scaling in the drafter's config.json with the lengths that you serve",
            "gpudiag drafter replay on long answers: if it falls there too, train the drafter on longer samples",
        ),
    )


def falls_with_context(m: Measurement) -> tuple[Stretch, Stretch] | None:
    """The first range of lengths and the last, if acceptance halved from one to the other beyond doubt."""
    told = [s for s in m.stretches if s.rounds >= LEAST_ROUNDS]
    if len(told) < 2:
        return None
    short, long = told[0], told[-1]
    if short.length.low is None or long.length.high is None or short.length.value < _LEAST_LENGTH:
        return None
    halved = long.length.value - 1 <= _LEFT * (short.length.value - 1)
    return (short, long) if halved and long.length.high < short.length.low else None


def _told(stretch: Stretch) -> str:
    return f"at {stretch.since} to {stretch.until - 1} tokens: {spread(stretch.length)} per round, {stretch.rounds} rounds"


RULE: Final = Rule(code="GPD609", name="drafter-context-too-short", severity="warning", evaluate=evaluate)
