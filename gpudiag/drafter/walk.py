"""Walks a table of accepted drafts as a server walks: a round starts where the one before it ended."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from gpudiag.model.replay import DraftCounts, Text

Word = str
"""One base-36 digit for each place where a round could start: how many drafts it would have had accepted. Place 0 is the last
token of the prompt; its round drafts after the first token of the answer, which the prefill gives."""

_RESAMPLES: Final = 400


class Round(Struct, frozen=True):
    """A round: where it starts (tokens after the end of the prompt) and how many of its drafts are accepted."""

    start: int
    accepted: int


def walk(word: Word, answer: int, steps: int, *, known: int | None = None) -> Iterator[Round]:
    """The rounds of a server that makes an answer of so many tokens.

    `known`: how many tokens after the prompt the drafts can be compared with; rounds that need more are left out. None: the
    table knows them all.
    """
    at, made = 0, 1
    while made < answer and at < len(word):
        if known is not None and at + 1 + steps > known:
            return
        accepted = min(int(word[at], 36), steps)
        yield Round(at, accepted)
        at += accepted + 1
        made += accepted + 1


def of_text(word: Word, text: Text, steps: int, *, greedy: bool) -> Iterator[Round]:
    """The rounds of a server that makes this answer: beyond its end only a greedy target is known."""
    return walk(word, len(text.answer), steps, known=None if greedy else len(text.answer))


def starts(rounds: Sequence[int]) -> Iterator[Round]:
    """The rounds that a server recorded."""
    at = 0
    for accepted in rounds:
        yield Round(at, accepted)
        at += accepted + 1


def acceptance(rounds: Iterable[int], steps: int) -> DraftCounts:
    """Counts of rounds by the number of accepted drafts in each."""
    at = [0] * steps
    count = 0
    for accepted in rounds:
        count += 1
        for position in range(min(accepted, steps)):
            at[position] += 1
    return DraftCounts(rounds=count, at=tuple(at))


def of_histogram(histogram: Sequence[int], steps: int) -> DraftCounts:
    """Counts from the number of rounds that accepted 0, 1, 2 ... drafts."""
    return DraftCounts(rounds=sum(histogram), at=tuple(sum(histogram[i + 1 :]) for i in range(steps)))


def total(parts: Iterable[DraftCounts], steps: int) -> DraftCounts:
    found = list(parts)
    return DraftCounts(rounds=sum(p.rounds for p in found), at=tuple(sum(p.at[i] for p in found) for i in range(steps)))


def interval(parts: Sequence[DraftCounts]) -> tuple[float, float]:
    """95 % interval of the acceptance length if other texts of the same kind had been drawn."""
    weighed = [(p.rounds, sum(p.at)) for p in parts if p.rounds]
    if not weighed:
        return (1.0, 1.0)
    draw = random.Random(0)  # noqa: S311  no secret: the same interval for the same texts
    lengths = []
    for _ in range(_RESAMPLES):
        picked = draw.choices(weighed, k=len(weighed))
        lengths.append(1 + sum(a for _, a in picked) / sum(r for r, _ in picked))
    lengths.sort()
    edge = _RESAMPLES // 40
    return lengths[edge], lengths[-edge - 1]
