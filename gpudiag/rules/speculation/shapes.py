"""What the acceptance of the positions of a round looks like, and what that usually comes from.

Calibrated on published and measured vectors (conditionals; each of three drafts):
nothing        0.04 0.02 0     other layers than trained on (vLLM #50170); 0.10 0.02 random embedding in the drafter's file
collapses      0.53 0.28 0.18  state fed back after instead of before the norm, measured; 1.00 0 0 first draft right only
fades          0.36 0.28 0.23  trained on 5,000 samples (speculators' example)
uneven         0.25 0.38 0.62  drafter of short context on long answers, measured
healthy        0.75 0.75 0.80  Llama-3.3-70B (vLLM #50170); 0.63 0.64 0.65 Kimi-K2.6 drafter
"""

from __future__ import annotations

from typing import Final

from gpudiag.model.speculation import Acceptance, Shape

LEAST_ROUNDS: Final = 200
"""With fewer, the interval of a share is wider than what tells the shapes apart."""

NOTHING_FIRST: Final = 0.12
HEALTHY_FIRST: Final = 0.55
HEALTHY_LATER: Final = 0.5
NORMAL_FIRST: Final = 0.45
COLLAPSED: Final = 0.65
"""A second conditional below this share of the first has collapsed; under-trained drafters keep about 0.8 of it."""


def shape_of(acceptance: Acceptance) -> Shape | None:
    """The shape, None without positions or with too few rounds."""
    shares = [c.value for c in acceptance.conditional]
    if not shares or acceptance.rounds is None or acceptance.rounds < LEAST_ROUNDS:
        return None
    first, later = shares[0], shares[1:]
    if first < NOTHING_FIRST:
        return "none"
    if first >= NORMAL_FIRST and later and later[0] < COLLAPSED * first:
        return "collapses"
    if first >= HEALTHY_FIRST and all(share >= HEALTHY_LATER for share in later):
        return "healthy"
    if later and max(later) > first and _apart(acceptance):
        return "uneven"
    if first < NORMAL_FIRST and later and max(later) <= first:
        return "fades"
    return "between"


def _apart(acceptance: Acceptance) -> bool:
    """Whether a later conditional lies above the first by more than both intervals allow."""
    first = acceptance.conditional[0]
    top = max(acceptance.conditional[1:], key=lambda c: c.value)
    if first.high is None or top.low is None:
        return top.value > first.value + 0.1
    return top.low > first.high
