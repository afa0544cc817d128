"""The arithmetic, against published and measured numbers."""

from __future__ import annotations

import itertools

import pytest

from gpudiag.drafter import cost
from gpudiag.drafter.bootstrap import estimate, estimate_of_two
from gpudiag.drafter.formulas import (
    conditional_of,
    each_for,
    extended,
    length_at,
    length_of,
    length_of_rate,
    rate_for,
    ratio_of,
    survival_of,
)

PUBLISHED = [
    # Survival by position, acceptance length; a source each.
    ((0.751, 0.567, 0.453), 2.77),  # Llama-3.3-70B, vLLM PR 50170
    ((0.036, 0.0006, 0.0), 1.036),  # the same with other layers
    ((0.363, 0.103, 0.024), 1.49),  # Llama-3.1-8B trained on 5,000 samples, speculators
    ((0.633, 0.404, 0.264), 2.30),  # Kimi-K2.6 MLA drafter
    ((0.499, 0.273, 0.196), 1.968),  # a tiny pair in vLLM 0.32.0
]


@pytest.mark.parametrize(("survival", "length"), PUBLISHED)
def test_length_is_one_and_the_survivals(survival: tuple[float, ...], length: float) -> None:
    assert length_of(survival) == pytest.approx(length, abs=0.006)
    assert survival_of(conditional_of(survival)) == pytest.approx(survival)


def test_fifteen_percent_at_three_steps_and_two_thirds_of_the_speed() -> None:
    length = length_of_rate(0.15, 3)
    assert length == pytest.approx(1.45)
    ratio = ratio_of(length, 0.66)
    assert ratio == pytest.approx(2.2, abs=0.005)
    assert rate_for(ratio, 3) == pytest.approx(0.40, abs=0.005)
    assert each_for(ratio, 3) == pytest.approx(0.606, abs=0.001)


@pytest.mark.parametrize(
    ("length", "speedup", "ratio"),
    [(3.27, 1.47, 2.22), (2.39, 1.24, 1.93), (2.96, 2.29, 1.29)],  # SpecBundle: Kimi-K2 gsm8k and mtbench, Llama-3.3-70B mtbench
)
def test_rounds_of_published_drafters_cost_little_more_than_two_steps(length: float, speedup: float, ratio: float) -> None:
    assert ratio_of(length, speedup) == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize(("each", "steps"), list(itertools.product((0.05, 0.36, 0.6, 0.8, 0.99), (1, 3, 7))))
def test_equal_acceptance_follows_the_geometric_series(each: float, steps: int) -> None:
    length = length_at(each, steps)
    assert length == pytest.approx((1 - each ** (steps + 1)) / (1 - each))
    assert each_for(length, steps) == pytest.approx(each)


def test_no_acceptance_gives_more_than_all_drafts() -> None:
    assert each_for(4.01, 3) is None
    assert each_for(4.0, 3) == pytest.approx(1)


def test_survival_ends_where_nothing_arrives() -> None:
    assert conditional_of((1.0, 0.0, 0.0)) == (1.0, 0.0)
    assert conditional_of(()) == ()


def test_survival_is_cut_and_carried_on() -> None:
    assert extended((0.6, 0.36, 0.216), 2) == (0.6, 0.36)
    assert extended((0.6, 0.3), 4) == pytest.approx((0.6, 0.3, 0.15, 0.075))
    assert extended((0.6, 0.0), 3) == (0.6, 0.0, 0.0)


def test_the_best_number_of_steps_falls_with_the_cost_of_a_round() -> None:
    good, cheap, dear = (0.75, 0.57, 0.45), 1.3, 2.7
    choices = [cost.choose(good, 3, ratio) for ratio in (cheap, dear)]
    assert [c.best for c in choices if c is not None] == [5, 1]
    poor = cost.choose((0.15, 0.02, 0.0), 3, 2.2)
    assert poor is not None
    assert poor.best == 0
    assert poor.rows[3].measured


def test_a_second_run_fits_the_cost_of_a_step() -> None:
    # R = 1.4 + 0.2 a step: 2.0 at three, 1.6 at one.
    fitted = cost.choose((0.75, 0.57, 0.45), 3, 2.0, (1, 1.6))
    assert fitted is not None
    assert fitted.basis == "fitted"
    assert fitted.rows[2].ratio == pytest.approx(1.8)


def test_there_is_no_choice_where_a_round_seems_to_cost_less_than_a_step() -> None:
    assert cost.choose((0.75, 0.57, 0.45), 3, 0.9) is None


def test_an_interval_holds_its_value_and_is_the_same_each_time() -> None:
    items = [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 10.0]
    found = estimate(items, lambda drawn: sum(drawn) / len(drawn))
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value == 3.5 < found.high
    assert found == estimate(items, lambda drawn: sum(drawn) / len(drawn))


def test_few_requests_have_no_interval() -> None:
    found = estimate([1.0, 2.0], lambda drawn: sum(drawn) / len(drawn))
    assert found is not None
    assert (found.value, found.low, found.high) == (1.5, None, None)
    two = estimate_of_two([1.0] * 9, [2.0] * 3, lambda a, b: sum(a) / len(a) / (sum(b) / len(b)))
    assert two is not None
    assert (two.value, two.low) == (0.5, None)


def test_what_has_no_value_has_no_estimate() -> None:
    assert estimate([1.0] * 9, lambda _: None) is None
