"""Whether a long context does a drafter harm: the same places, with all of the text in its sight and with the last of it.

A text that gets harder towards its end gets harder for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpudiag.drafter import walk
from gpudiag.drafter.bootstrap import estimate
from gpudiag.drafter.walk import Word
from gpudiag.model.replay import Context, DraftCounts, Text

_FEWEST: Final = 20
"""Rounds below which there is nothing to compare."""


def compared(
    whole: Sequence[Word], cut: Sequence[Word], texts: Sequence[Text], steps: int, *, window: int, greedy: bool
) -> Context | None:
    """Acceptance beyond twice the window, where at least half of the text is out of a drafter's sight; None if few rounds are."""
    since = 2 * window
    pairs = [
        (_beyond(w, t, steps, since, greedy=greedy), _beyond(c, t, steps, since, greedy=greedy))
        for w, c, t in zip(whole, cut, texts, strict=True)
    ]
    told = [(w, c) for w, c in pairs if w.rounds and c.rounds]
    with_all, with_last = (walk.total((pair[i] for pair in told), steps) for i in (0, 1))
    if min(with_all.rounds, with_last.rounds) < _FEWEST:
        return None

    def gained(drawn: Sequence[tuple[DraftCounts, DraftCounts]]) -> float:
        some, last = (walk.total((pair[i] for pair in drawn), steps) for i in (0, 1))
        return last.length - some.length

    gain = estimate(told, gained)
    return Context(
        window=window,
        since=since,
        texts=len(told),
        whole=with_all,
        cut=with_last,
        low=gain.low if gain else None,
        high=gain.high if gain else None,
    )


def _beyond(word: Word, text: Text, steps: int, since: int, *, greedy: bool) -> DraftCounts:
    rounds = walk.walk(word, len(text.answer), steps, known=None if greedy else len(text.answer))
    return walk.acceptance((r.accepted for r in rounds if text.prompt + r.start >= since), steps)
