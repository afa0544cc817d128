"""GPD609 from a replay: the drafter does badly far into a text, and it is the length of the text that does it.

Two grounds. The same places accept more when the drafter attends to the last tokens only: what is further back does it harm. Or
acceptance has all but gone in most of the texts, which their content could also do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.model.replay import Context, Replay, Section
from gpudiag.rules.base import finding

CODE: Final = "GPD609"
NAME: Final = "drafter-context-too-short"
_FEW_TEXTS: Final = 4
"""Texts below which a stretch says more of the texts than of its place."""
_LEAST_GAIN: Final = 0.1
"""Tokens a round that make a difference to anybody."""
_SHARE: Final = 0.25
"""And as a share of the drafts that are accepted there."""


def evaluate(replay: Replay) -> Finding | None:
    harmed = max((c for c in replay.contexts if _harms(c)), key=lambda c: c.low or 0.0, default=None)
    if harmed is not None:
        return _too_long(replay, harmed)
    falls = _falling(replay.sections)
    return None if falls is None else _fallen(replay, *falls)


def _harms(context: Context) -> bool:
    """Whether a shorter view lifts acceptance beyond what other texts would show, and enough to matter."""
    least = max(_LEAST_GAIN, _SHARE * (context.whole.length - 1))
    gain = context.cut.length - context.whole.length
    return context.low is not None and context.low > 0 and gain > least


def _too_long(replay: Replay, context: Context) -> Finding:
    claim = (
        f"replayed without a server, from position {context.since} on in {context.texts} texts: {context.whole.length:.2f} "
        f"tokens a round with all of the text, {context.cut.length:.2f} at the same places if the drafter attends to its last "
        f"{context.window} tokens only (difference {context.low:.2f} to {context.high:.2f})"
    )
    title = (
        f"The drafter loses long texts: {context.whole.length:.2f} tokens a round from position {context.since} on, "
        f"{context.cut.length:.2f} if it saw the last {context.window} tokens only"
    )
    window = (
        f"SGLang: --speculative-draft-window-size {context.window} has a Llama drafter see so much; runbook GPD609 says where"
    )
    return _finding(replay, title, Evidence(source="draft-fates", claim=claim + _served(replay)), window)


def _falling(sections: Sequence[Section]) -> tuple[Section, Section] | None:
    """The best stretch near the beginning and the last one, if acceptance has all but gone there in most of the texts.

    Rounds of one text are alike: a few texts that a drafter does badly on are no effect of length, however many rounds.
    """
    by_place = [s for s in sections if s.by == "position"]
    if len(by_place) < 2:
        return None
    first = max(by_place[:-1], key=lambda s: s.acceptance.length)
    last = by_place[-1]
    drop = first.acceptance.length - last.acceptance.length
    error = (first.acceptance.error**2 + last.acceptance.error**2) ** 0.5
    gone = last.acceptance.length - 1 < 0.4 * (first.acceptance.length - 1)
    of_most = last.texts >= _FEW_TEXTS and last.lost > max(first.lost, last.texts / 2)
    return (first, last) if gone and of_most and drop > max(0.2, 4 * error) else None


def _fallen(replay: Replay, first: Section, last: Section) -> Finding:
    claim = (
        f"replayed without a server: {first.acceptance.length:.2f} at positions {first.name}, "
        f"{last.acceptance.length:.2f} at {last.name}, where {last.lost} of {last.texts} texts accept hardly a draft"
    )
    # Where it is not every text, something else may tell apart those that are lost.
    source = "draft-fates" if last.lost == last.texts else "draft-counts"
    title = (
        f"The drafter loses long texts: {first.acceptance.length:.2f} tokens a round, then "
        f"{last.acceptance.length:.2f} from position {last.name.partition('-')[0]} on"
    )
    return _finding(replay, title, Evidence(source=source, claim=claim + _served(replay)))


def _served(replay: Replay) -> str:
    return "; the server accepts the same" if replay.measured is not None else ""


def _finding(replay: Replay, title: str, evidence: Evidence, *steps: str) -> Finding:
    return finding(
        CODE,
        NAME,
        "warning",
        title=title,
        links=[[evidence]],
        next_steps=["train it on texts as long as those that are served, or turn speculation off for long ones", *steps],
        culprits=[Culprit(node=f"file:{replay.draft}", path=replay.draft)],
    )
