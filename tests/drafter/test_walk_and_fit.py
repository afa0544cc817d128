"""The walk over a table of starts, and which of several tables explains a server's counts."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from gpudiag.drafter import fit, splits, walk
from gpudiag.drafter.fit import Measured, Table
from gpudiag.drafter.hypotheses import Hypothesis, hypotheses
from gpudiag.model.replay import DraftCounts, Text

STEPS = 3


def test_a_round_starts_where_the_last_one_ended() -> None:
    # Places 0, then 0 + 2 + 1 = 3, then 3 + 0 + 1 = 4: six tokens are made by 1 + 3 + 1 + 2.
    assert [(r.start, r.accepted) for r in walk.walk("2990100", answer=6, steps=3)] == [(0, 2), (3, 0), (4, 1)]


def test_a_round_accepts_no_more_than_it_drafts() -> None:
    assert [r.accepted for r in walk.walk("zzzz", answer=4, steps=2)] == [2]


def test_without_what_comes_after_the_text_its_last_rounds_are_left_out() -> None:
    assert [r.start for r in walk.walk("0" * 10, answer=10, steps=3, known=10)] == [0, 1, 2, 3, 4, 5, 6]


def test_a_record_has_the_same_places_as_the_walk() -> None:
    walked = list(walk.walk("2990100", answer=6, steps=3))
    assert list(walk.starts([r.accepted for r in walked])) == walked


def test_counts_of_rounds_and_of_a_histogram_are_the_same() -> None:
    rounds = [0, 0, 3, 1, 2, 0]
    histogram = [rounds.count(n) for n in range(STEPS + 1)]
    found = walk.acceptance(rounds, STEPS)
    assert found == walk.of_histogram(histogram, STEPS) == DraftCounts(rounds=6, at=(3, 2, 1))
    assert found.length == 2.0
    assert found.conditional == (0.5, 2 / 3, 0.5)
    # SGLang's histogram ends at the last entry that is not 0.
    assert walk.of_histogram([3, 1], STEPS) == DraftCounts(rounds=4, at=(1, 0, 0))


def test_an_interval_is_wider_with_fewer_texts() -> None:
    parts = [DraftCounts(rounds=20, at=(n, 0, 0)) for n in (4, 8, 12, 16)]
    narrow, wide = walk.interval(parts * 20), walk.interval(parts)
    assert wide[0] < narrow[0] < 1.5 < narrow[1] < wide[1]
    assert walk.interval([]) == (1.0, 1.0)


def words(seed: int, chance: float, count: int = 12, length: int = 80) -> tuple[str, ...]:
    """Tables of a drafter each of whose drafts is right with this chance."""
    draw = random.Random(seed)  # noqa: S311  no secret

    def one() -> str:
        right = 0
        while right < STEPS and draw.random() < chance:
            right += 1
        return str(right)

    return tuple("".join(one() for _ in range(length)) for _ in range(count))


def table(name: str, kind: str, *draws: tuple[str, ...]) -> Table:
    return Table(
        hypothesis=Hypothesis(name=name, kind=kind, says=name, prior=1.0, group=name if len(draws) > 1 else ""), words=draws
    )


def served(truth: Sequence[str], *, flipped: float = 0.0, form: str = "rounds") -> tuple[Text, ...]:
    """Texts of a server that drafts as `truth` says, but for a share of rounds."""
    draw = random.Random(11)  # noqa: S311  no secret
    texts = []
    for word in truth:
        at, rounds = 0, []
        while at < 70:
            accepted = int(word[at]) if draw.random() >= flipped else draw.randint(0, STEPS)
            rounds.append(accepted)
            at += accepted + 1
        histogram = tuple(rounds.count(n) for n in range(STEPS + 1))
        text = Text(ids=(0,) * (5 + at + 1), prompt=5, rounds=tuple(rounds) if form == "rounds" else None, histogram=histogram)
        texts.append(text)
    return tuple(texts)


RIGHT, LIKE_IT, LOW = words(1, 0.6), words(2, 0.6), words(3, 0.1)


@pytest.mark.parametrize("form", ["rounds", "histograms"])
def test_what_drafts_as_the_server_does_is_the_best(form: str) -> None:
    texts = served(RIGHT, flipped=0.03, form=form)
    tables = [table("low", "norm", LOW), table("alike", "layers", LIKE_IT), table("right", "as-trained", RIGHT)]
    seen = fit.measured(texts, STEPS)
    assert seen is not None
    assert seen.source == form
    found = fit.candidates(tables, texts, STEPS, seen, greedy=True)
    assert found[0].name == "right"
    assert found[0].times_less_likely == 1.0
    by_name = {c.name: c for c in found}
    assert (by_name["low"].times_less_likely or 0) > 1e6
    if form == "rounds":
        assert (by_name["alike"].times_less_likely or 0) > 1e6, "the same rate at other places is another drafter"
        assert (found[0].agrees or 0) > 0.9 > 0.7 > (by_name["alike"].agrees or 0)


def test_totals_do_not_tell_two_drafters_of_the_same_rate_apart() -> None:
    texts = served(RIGHT)
    total = walk.total((walk.acceptance(t.rounds or (), STEPS) for t in texts), STEPS)
    tables = [table("right", "as-trained", RIGHT), table("alike", "layers", LIKE_IT), table("low", "norm", LOW)]
    found = {c.name: c for c in fit.candidates(tables, texts, STEPS, Measured(total=total, source="counters"), greedy=True)}
    assert (found["alike"].times_less_likely or 0) < 100
    assert (found["low"].times_less_likely or 0) > 1e6


def test_draws_of_an_unknown_tensor_are_one_candidate() -> None:
    texts = served(words(30, 0.1))
    tables = [table("right", "as-trained", RIGHT), table("another", "embedding", words(31, 0.1), words(32, 0.1), words(33, 0.1))]
    best = fit.candidates(tables, texts, STEPS, fit.measured(texts, STEPS), greedy=True)[0]
    assert (best.name, best.drawn) == ("another", True)


def test_one_draw_that_does_what_the_server_does_is_enough() -> None:
    """Where only counts are known: draws of another tensor may differ from each other as much as from the truth."""
    texts = served(words(30, 0.25), form="histograms")
    seen = fit.measured(texts, STEPS)
    draws = (words(31, 0.02), words(32, 0.25), words(33, 0.02))
    tables = [table("right", "as-trained", RIGHT), table("near", "norm", words(34, 0.33)), table("another", "embedding", *draws)]
    best = fit.candidates(tables, texts, STEPS, seen, greedy=True)[0]
    assert best.name == "another"
    assert best.replayed.survival[0] == pytest.approx(0.25, abs=0.05), "the counts of that draw, not of all of them"


def test_texts_that_do_not_all_carry_counts_carry_none() -> None:
    texts = served(RIGHT)
    assert fit.measured((*texts, Text(ids=(1, 2), prompt=1)), STEPS) is None


def test_hypotheses_have_their_own_names_and_leave_the_drafter_as_trained_out() -> None:
    known = hypotheses(8, (2, 4, 5), post_norm=False, residual_normed=False)
    names = [h.name for h in known]
    assert len(set(names)) == len(names)
    assert names[0] == "as trained"
    assert (2, 4, 5) not in [h.layers for h in known]
    assert [h.layers for h in known if h.name == "one layer early"] == [(1, 3, 4)]
    assert not [h for h in hypotheses(8, (0, 4, 8), post_norm=False, residual_normed=False) if h.name.startswith("one layer")]


def test_parts_of_texts_are_told_apart() -> None:
    close = 7
    texts = tuple(
        Text(ids=(*range(10, 15), *([1] * 40), close, *([2] * 40)), prompt=5, domain=domain) for domain in ("code", "talk") * 6
    )
    # Right in the reasoning, wrong after it; no accepted draft reaches across.
    table_of_all = ("1" * 40 + "0" * 42,) * len(texts)
    found = splits.split(table_of_all, texts, STEPS, greedy=True, closing=frozenset({close}))
    by_name = {(s.by, s.name): s.acceptance.length for s in found}
    assert {s.name: (s.texts, s.lost) for s in found if s.by == "section"} == {"reasoning": (12, 0), "answer": (12, 12)}
    assert by_name["section", "reasoning"] > 1.9
    assert by_name["section", "answer"] == 1.0
    assert by_name["domain", "code"] == by_name["domain", "talk"]
    # All of them begin and end below position 128: two stretches.
    assert [s.name for s in found if s.by == "position"] == ["0-63", "64-127"]
