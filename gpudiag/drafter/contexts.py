"""Whether a long context does a drafter harm: the same places, with all of the text in its sight and with the last of it.

A text that gets harder towards its end gets harder for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpudiag.drafter import walk
from gpudiag.drafter.bootstrap import estimate
from gpudiag.drafter.hypotheses import Hypothesis
from gpudiag.drafter.walk import Word
from gpudiag.model.replay import AS_TRAINED, Context, DraftCounts, Text

_FEWEST: Final = 20
"""Rounds below which there is nothing to compare."""


def compare(
    views: Sequence[Hypothesis], words: Mapping[str, Sequence[Word]], texts: Sequence[Text], steps: int, *, greedy: bool
) -> tuple[Context, ...]:
    """What each of these shorter views changes, by the replay's words; a view with few rounds to compare is left out."""
    made = (
        _compared(words[AS_TRAINED], words[view.name], texts, steps, window=view.window, greedy=greedy)
        for view in views
        if isinstance(view.window, int)
    )
    return tuple(context for context in made if context is not None)


def _compared(
    whole: Sequence[Word], cut: Sequence[Word], texts: Sequence[Text], steps: int, *, window: int, greedy: bool
) -> Context | None:
    """Acceptance beyond twice the window, where at least half of the text is out of a drafter's sight; None if few rounds are."""
    since = 2 * window
    pairs = [
        (_beyond(w, t, steps, since, greedy=greedy), _beyond(c, t, steps, since, greedy=greedy))
        for w, c, t in zip(whole, cut, texts, strict=True)
    ]
    told = [(w, c) for w, c in pairs if w.rounds and c.rounds]

    def totals(drawn: Sequence[tuple[DraftCounts, DraftCounts]]) -> tuple[DraftCounts, DraftCounts]:
        return walk.total((w for w, _ in drawn), steps), walk.total((c for _, c in drawn), steps)

    def gained(drawn: Sequence[tuple[DraftCounts, DraftCounts]]) -> float:
        with_all, with_last = totals(drawn)
        return with_last.length - with_all.length

    with_all, with_last = totals(told)
    if min(with_all.rounds, with_last.rounds) < _FEWEST:
        return None
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
    rounds = walk.of_text(word, text, steps, greedy=greedy)
    return walk.acceptance((r.accepted for r in rounds if text.prompt + r.start >= since), steps)
