"""Where a measurement stands: above or below its break-even, and in which words its numbers are said."""

from __future__ import annotations

from typing import Final, Literal

from gpudiag.model.finding import Evidence
from gpudiag.model.speculation import Cost, Estimate, Measurement, StepsRow

Standing = Literal["above", "below", "close"]

GOOD_EACH: Final = 0.6
BEST_EACH: Final = 0.8
"""Drafters published for exactly their target accept 0.6 to 0.8 at each position of three."""

CONTROL: Final = (
    "positive control: a drafter published for exactly this target, on its published prompts, must reach its published length "
    "within 10 %"
)
"""What tells a bad drafter from a bad integration when both give the same numbers."""

_WORTH: Final = 1.03
"""A gain below this is within the error of the assumption about the cost."""

_MARGIN: Final = 0.1
"""Numbers without an interval must differ by so much of themselves."""


def standing(m: Measurement) -> Standing | None:
    """Acceptance length against R; None where one of them is not known."""
    if m.acceptance is None or m.cost is None:
        return None
    length, ratio = _bounds(m.acceptance.length), _bounds(m.cost.ratio)
    if length[0] > ratio[1]:
        return "above"
    return "below" if length[1] < ratio[0] else "close"


def _bounds(estimate: Estimate) -> tuple[float, float]:
    if estimate.low is None or estimate.high is None:
        return estimate.value * (1 - _MARGIN / 2), estimate.value * (1 + _MARGIN / 2)
    return estimate.low, estimate.high


def by_hand(m: Measurement) -> bool:
    """Whether a person gave the acceptance, or the speed-up."""
    if m.cost is not None and m.cost.basis == "given speed-up":
        return True
    return m.acceptance is not None and m.acceptance.source == "given"


def is_mixed(m: Measurement) -> bool:
    """Whether the acceptance is that of other people's requests too."""
    run = m.served
    if run is None or m.acceptance is None or m.acceptance.source == "responses":
        return False
    return not any(r.counted_by for r in run.requests) and run.tokens_of_others != 0


def is_greedy(m: Measurement) -> bool:
    """At a higher temperature fewer drafts are accepted, which is no fault."""
    return m.served is None or m.served.load.temperature == 0


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def spread(estimate: Estimate, form: str = ".2f") -> str:
    """'1.45 (1.38 to 1.52)'."""
    if estimate.low is None or estimate.high is None:
        return format(estimate.value, form)
    return f"{estimate.value:{form}} ({estimate.low:{form}} to {estimate.high:{form}})"


def sentence(m: Measurement) -> str:
    """'It accepts 1.45 per round and needs 2.20 to break even'; empty where one of them is not known."""
    if m.acceptance is None or m.cost is None:
        return ""
    return f"It accepts {m.acceptance.length.value:.2f} per round and needs {m.cost.ratio.value:.2f} to break even"


def needed(cost: Cost, steps: int) -> str:
    """What each position has to reach: '61 % of the drafts at each of 3 positions'."""
    if cost.break_even_each is None:
        return f"more than {steps + 1} tokens of each round of {steps} drafts"
    return f"{percent(cost.break_even_each)} of the drafts at each of {steps} positions"


def better_steps(m: Measurement) -> StepsRow | None:
    """Another number of steps that would be worth the change; its `steps` may be 0, for none."""
    if m.choice is None or m.steps is None or m.choice.best == m.steps:
        return None
    best, now = m.choice.rows[m.choice.best], m.choice.rows[m.steps]
    return best if best.speedup >= _WORTH * now.speedup else None


def meanwhile(m: Measurement) -> str:
    """What to serve until something is mended."""
    row = better_steps(m)
    if row is not None and row.steps:
        return f"meanwhile serve {row.steps} instead of {m.steps} steps: about {row.speedup:.2f} of a plain run, by these numbers"
    return "meanwhile serve without speculation at this load: it makes each token dearer"


def counted(m: Measurement) -> Evidence:
    """The acceptance, as evidence. Raises ValueError where there is none."""
    found = m.acceptance
    if found is None:
        raise ValueError("no acceptance was measured")
    if found.source == "given":
        return Evidence(source="given", claim=f"acceptance length {found.length.value:.2f} with {m.steps} drafts a round")
    source = "log-line" if found.source == "log" else "speculation-counts"
    shares = ", ".join(percent(c.value) for c in found.conditional)
    where = f"; of those reached, by position: {shares}" if shares else ""
    rounds = f" in {found.rounds} rounds" if found.rounds else ""
    return Evidence(source=source, claim=f"acceptance length {spread(found.length)}{rounds}{where}")


def timed(m: Measurement) -> Evidence:
    """The cost of a round, as evidence. Raises ValueError where there is none."""
    if m.cost is None:
        raise ValueError("no cost was measured")
    claim = f"a round costs {spread(m.cost.ratio)} plain decode steps"
    if m.cost.basis == "given speed-up":
        return Evidence(source="given", claim=f"{claim}: {m.cost.ratio.value:.2f} = length over speed-up")
    if m.cost.round_s is not None and m.cost.step_s is not None:
        claim += f": {1e3 * m.cost.round_s:.2f} ms against {1e3 * m.cost.step_s:.2f} ms"
    # Times that others disturbed, and of too few requests for an interval.
    shared = m.cost.ratio.low is None or any(
        run is not None and run.tokens_of_others != 0 for run in (m.simulated or m.served, m.plain)
    )
    return Evidence(source="timing-under-load" if shared else "timing", claim=claim)
