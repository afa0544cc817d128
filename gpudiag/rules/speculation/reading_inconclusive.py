"""GPD612: what was measured fits more than one cause; says which number is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.speculation import Measurement
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.speculation.shapes import HEALTHY_FIRST, LEAST_ROUNDS, NORMAL_FIRST, NOTHING_FIRST
from gpudiag.rules.speculation.standing import (
    CONTROL,
    by_hand,
    counted,
    is_greedy,
    is_mixed,
    percent,
    sentence,
    spread,
    standing,
    timed,
)

_AMBIGUOUS: Final = Evidence(source="signature", claim="these numbers fit more than one cause")
_POSITIONS: Final = "gpudiag drafter measure URL against the running server: acceptance by position tells the causes apart"


def evaluate(m: Measurement) -> Iterator[Finding]:
    said = _open_question(m)
    if said is None or m.acceptance is None:
        return
    title, steps = said
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=title,
        links=[[counted(m)], *([[timed(m)]] if m.cost is not None else []), [_AMBIGUOUS]],
        notes=_break_even(m),
        next_steps=steps,
    )


def _open_question(m: Measurement) -> tuple[str, tuple[str, ...]] | None:
    """What is not known, and how it would be; None where nothing is open."""
    found, where = m.acceptance, standing(m)
    if found is None:
        return None
    if by_hand(m):
        return None if where == "above" else _of_given_numbers(m)
    if is_mixed(m):
        return "Others used the server while it was measured, and its counters are theirs too", (
            "measure when nobody else uses it",
            "vLLM: --per-request-spec-decode-metrics summary counts for each request",
        )
    if found.rounds is not None and found.rounds < LEAST_ROUNDS:
        return f"{found.rounds} rounds are too few to read anything from their positions", (
            "give more prompts (--prompts FILE), or more tokens to each (--max-tokens)",
        )
    if where == "close":
        return f"{sentence(m)}: too close to tell ({spread(found.length)} against {_cost(m)})", (
            "give more prompts, and measure when nobody else uses the server",
        )
    if where == "above":
        return None
    if not is_greedy(m):
        return "Measured above temperature 0, where fewer drafts are accepted without a fault", (
            "measure again with --temperature 0",
        )
    return _of_shape(m)


def _of_shape(m: Measurement) -> tuple[str, tuple[str, ...]] | None:
    if m.acceptance is None or m.shape not in (None, "uneven", "between"):
        return None
    length = f"{m.acceptance.length.value:.2f} accepted per round"
    if m.shape is None:
        return f"{length}: {_likeness(m)}; not separable without per-position data", (_more_positions(m), CONTROL)
    if m.dead_ends is not None and 2 * m.dead_ends.dead >= m.dead_ends.answers:
        ends = m.dead_ends
        return (
            f"{length}: {ends.dead} of {ends.answers} long answers end without an accepted draft, the first from token "
            f"{ends.since} on"
        ), (
            "gpudiag drafter replay with the same prompts and --max-tokens tells whether it is the length or the text",
            CONTROL,
        )
    if m.shape == "uneven":
        return f"{length}, and more once a first draft was right: some stretches are accepted and others are not", (
            "--prompts with one kind of text at a time, and longer --max-tokens: is it the domain or the length?",
            "gpudiag drafter replay splits it by position and section",
        )
    return f"{length}: between a good drafter and a poor one", (
        CONTROL,
        "gpudiag drafter replay tells which it is",
    )


def _of_given_numbers(m: Measurement) -> tuple[str, tuple[str, ...]]:
    head = sentence(m)
    if m.cost is not None and m.cost.break_even_rate is not None:
        head += f" ({percent(m.cost.break_even_rate)} at {m.steps} steps)"
    likely = f"{_likeness(m)}; not separable without per-position data"
    title = f"{head}: {likely}" if head else f"{_length(m)} per round is {likely}"
    steps = (CONTROL, _POSITIONS)
    return title, steps if m.cost is not None else (*steps, "--speedup: tokens a second with the drafter over those without")


def _likeness(m: Measurement) -> str:
    """What an acceptance of this height alone is consistent with."""
    each = m.acceptance.each if m.acceptance is not None else None
    if each is None:
        return "how good that is depends on the number of steps"
    if each < NOTHING_FIRST:
        return "consistent with a drafter that does not get what it was trained on"
    if each < NORMAL_FIRST:
        return "consistent with an under-trained drafter, another target version or other domain"
    return "between poor and good" if each < HEALTHY_FIRST else "consistent with a healthy drafter"


def _length(m: Measurement) -> str:
    return f"{m.acceptance.length.value:.2f}" if m.acceptance is not None else ""


def _cost(m: Measurement) -> str:
    return spread(m.cost.ratio) if m.cost is not None else ""


def _more_positions(m: Measurement) -> str:
    if m.served is not None and m.served.engine == "sglang":
        return "--raw asks SGLang's /generate, whose answers have a histogram also before 0.5.23"
    if m.served is not None:
        return "vLLM: --per-request-spec-decode-metrics summary, or leave its metrics on"
    return _POSITIONS


def _break_even(m: Measurement) -> list[Evidence]:
    if m.cost is None or m.cost.break_even_each is None or m.steps is None:
        return []
    claim = f"break-even is at {percent(m.cost.break_even_each)} of the drafts at each of {m.steps} positions"
    return [Evidence(source="signature", claim=f"{claim}; good drafters reach 60 to 80 %")]


RULE: Final = Rule(code="GPD612", name="speculation-reading-inconclusive", severity="info", evaluate=evaluate, specificity=0)
