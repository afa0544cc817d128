"""Which way of serving explains what a server accepted: the likelihood of each against the others.

With a record of every round, each hypothesis says for the very place where the server's round started which drafts are
accepted; numerics that differ (bfloat16, other kernels) flip a few. Per position, rounds that the hypothesis calls accepted and
those that it does not are two groups, and the share accepted in each is unknown with a beta prior close to its word: a
hypothesis that is right leaves almost nothing to chance, one that is wrong only as much as its groups still tell apart.

With counts only, the measured and the replayed count of a position are two samples of one unknown rate (beta-binomial): by
request where the server counts by request, else in total.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from gpudiag.drafter import walk
from gpudiag.drafter.hypotheses import Hypothesis
from gpudiag.drafter.walk import Word
from gpudiag.model.replay import Candidate, DraftCounts, Text

_FLIPPED: Final = 0.02
"""Share of drafts whose fate differs by numerics alone: about what bfloat16 kernels of two implementations leave."""
_WEIGHT: Final = 20.0
"""How many rounds the prior on a group's rate is worth."""
_PAIRED: Final = 4.0
"""How much more a count of the same requests is worth than a count of others: their texts are the same."""
_DRAWN: Final = 0.25
"""The same where another tensor stands for the one that is not known: what it does in one text differs."""
MOST_TIMES: Final = 1e9


class Measured(Struct, frozen=True, kw_only=True):
    """What the server says of its drafts, as fine as it says it. `total` covers the texts, or all of its traffic."""

    total: DraftCounts
    source: str
    """rounds, histograms, counters or given."""


class Table(Struct, frozen=True, kw_only=True):
    """One hypothesis, replayed: a word for each text and draw."""

    hypothesis: Hypothesis
    words: tuple[tuple[Word, ...], ...]
    """By draw, then by text."""


def measured(texts: Sequence[Text], steps: int) -> Measured | None:
    """What the texts carry with them: rounds if every one has them, else histograms."""
    if texts and all(t.rounds is not None for t in texts):
        rounds = [n for t in texts for n in t.rounds or ()]
        return Measured(total=walk.acceptance(rounds, steps), source="rounds")
    if texts and all(t.histogram is not None for t in texts):
        parts = [walk.of_histogram(t.histogram or (), steps) for t in texts]
        return Measured(total=walk.total(parts, steps), source="histograms")
    return None


def candidates(
    tables: Sequence[Table], texts: Sequence[Text], steps: int, seen: Measured | None, *, greedy: bool
) -> tuple[Candidate, ...]:
    """Every hypothesis with its replayed acceptance and its likelihood; best first, or in their order if nothing was measured."""
    found = [_candidate(table, texts, steps, seen, greedy=greedy) for table in tables]
    if seen is None:
        return tuple(candidate for candidate, _ in found)
    best = max(score for _, score in found)
    ranked = sorted(found, key=lambda pair: -pair[1])
    return tuple(
        msgspec.structs.replace(c, times_less_likely=min(MOST_TIMES, math.exp(min(50.0, best - score)))) for c, score in ranked
    )


def by_text(words: Sequence[Word], texts: Sequence[Text], steps: int, *, greedy: bool) -> list[DraftCounts]:
    """The walk of each text."""
    return [
        walk.acceptance((r.accepted for r in walk.of_text(word, text, steps, greedy=greedy)), steps)
        for word, text in zip(words, texts, strict=True)
    ]


def _candidate(
    table: Table, texts: Sequence[Text], steps: int, seen: Measured | None, *, greedy: bool
) -> tuple[Candidate, float]:
    walked = [by_text(words, texts, steps, greedy=greedy) for words in table.words]
    # The counts of several draws together; their number of rounds is not that of the texts, their rates are.
    replayed = walk.total((part for parts in walked for part in parts), steps)
    likelihood = agrees = None
    if seen is not None and seen.source == "rounds":
        likelihood, agrees = _by_round(table.words, texts, steps)
    elif seen is not None:
        likelihood, nearest = _by_draw(walked, texts, steps, seen)
        replayed = walk.total(walked[nearest], steps)
    hypothesis = table.hypothesis
    candidate = Candidate(
        name=hypothesis.group or hypothesis.name,
        kind=hypothesis.kind,
        says=hypothesis.says,
        replayed=replayed,
        log_likelihood=likelihood,
        agrees=agrees,
        drawn=bool(hypothesis.group),
    )
    return candidate, (likelihood or 0.0) - hypothesis.prior


def _by_round(draws: Sequence[Sequence[Word]], texts: Sequence[Text], steps: int) -> tuple[float, float]:
    """Log likelihood of the recorded rounds, and the share of them that the first draw predicts exactly."""
    groups: dict[tuple[int, int], Counter[bool]] = {}
    exact = compared = 0
    for index, text in enumerate(texts):
        for one in walk.starts(text.rounds or ()):
            words = [draw[index] for draw in draws]
            if one.start >= len(words[0]):
                break
            foretold = [min(int(word[one.start], 36), steps) for word in words]
            compared += 1
            exact += foretold[0] == one.accepted
            for position in range(min(one.accepted + 1, steps)):
                # A draw that stops earlier says nothing of what comes after.
                says = [f > position for f in foretold if f >= position]
                key = (position, round(4 * sum(says) / len(says)) if says else -1)
                groups.setdefault(key, Counter())[one.accepted > position] += 1
    likelihood = 0.0
    for (_, quarter), outcome in groups.items():
        rate = 0.5 if quarter < 0 else _FLIPPED + (1 - 2 * _FLIPPED) * quarter / 4
        weight = 2.0 if quarter < 0 else _WEIGHT
        likelihood += _beta_binomial(outcome[True], outcome[False], weight * rate, weight * (1 - rate))
    return likelihood, exact / compared if compared else 0.0


def _by_draw(walked: Sequence[Sequence[DraftCounts]], texts: Sequence[Text], steps: int, seen: Measured) -> tuple[float, int]:
    """Log likelihood of the counts if each draw of the tensor is as likely as the others, and which draw explains them best."""
    by_text = seen.source == "histograms"
    found = [walk.of_histogram(t.histogram or (), steps) for t in texts] if by_text else [seen.total]
    worth = 1.0 if not by_text else _PAIRED if len(walked) == 1 else _DRAWN
    scores = []
    for parts in walked:
        foretold = parts if by_text else [walk.total(parts, steps)]
        scores.append(sum(_by_count(f, w, steps, worth) for f, w in zip(found, foretold, strict=True)))
    best = max(scores)
    return best + math.log(sum(math.exp(s - best) for s in scores) / len(scores)), scores.index(best)


def _by_count(found: DraftCounts, foretold: DraftCounts, steps: int, worth: float) -> float:
    """Log likelihood of counts by position, given how many the hypothesis had accepted of how many."""
    likelihood = 0.0
    reached, reached_there = found.rounds, foretold.rounds
    for position in range(min(steps, len(found.at))):
        hit, hit_there = found.at[position], foretold.at[position]
        alpha, beta = worth * hit_there + 0.5, worth * (reached_there - hit_there) + 0.5
        likelihood += _beta_binomial(hit, reached - hit, alpha, beta)
        reached, reached_there = hit, hit_there
    return likelihood


def _beta_binomial(hits: int, misses: int, alpha: float, beta: float) -> float:
    """Log probability of a sequence with so many hits and misses whose rate is drawn from a beta distribution."""
    return _log_beta(hits + alpha, misses + beta) - _log_beta(alpha, beta)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def grouped(found: Mapping[str, Sequence[Word]], known: Sequence[Hypothesis]) -> list[Table]:
    """The child's words by hypothesis name, draws of one tensor together. What the drafter cannot be served as is absent."""
    tables: dict[str, tuple[Hypothesis, list[tuple[Word, ...]]]] = {}
    for hypothesis in known:
        if hypothesis.name in found:
            key = hypothesis.group or hypothesis.name
            tables.setdefault(key, (hypothesis, []))[1].append(tuple(found[hypothesis.name]))
    return [Table(hypothesis=h, words=tuple(words)) for h, words in tables.values()]
