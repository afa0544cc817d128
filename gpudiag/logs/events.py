"""Lines that mean something by themselves: tables of the engines applied to one line."""

from __future__ import annotations

from typing import Final

from gpudiag.logs.engines import launch, sglang, torch, vllm
from gpudiag.logs.engines.base import Sign, Step, Victim
from gpudiag.logs.grammar import Prefix
from gpudiag.model.log import Event, Milestone, Place, Traceback

SIGNS: Final[tuple[Sign, ...]] = (*sglang.SIGNS, *vllm.SIGNS, *torch.SIGNS, *launch.SIGNS)
STEPS: Final[tuple[Step, ...]] = (*sglang.STEPS, *vllm.STEPS, *torch.STEPS)
VICTIMS: Final[tuple[Victim, ...]] = (*sglang.VICTIMS, *vllm.VICTIMS, *torch.VICTIMS)

EXCERPT_CHARS: Final = 600
_LOOK_CHARS: Final = 2048
_UNDATED: Final = frozenset({"plain", "tag"})
"""Forms of line in which an argument parser complains: it knows no logger."""


def events_in(line: str, prefix: Prefix, place: Place) -> list[Event]:
    """What `line` (clean, with its prefix) says. The literal test comes before any regular expression."""
    found: list[Event] = []
    for sign in SIGNS:
        if sign.anchor not in line:
            continue
        # Around the anchor only: a line may be huge, and a pattern that starts with a name tries every place in it.
        match = sign.pattern.search(_around(prefix.text, sign.anchor)) or sign.pattern.search(_around(line, sign.anchor))
        if match is None or (sign.kind == "usage-error" and prefix.form not in _UNDATED):
            continue
        fields = {k: v for k, v in match.groupdict().items() if v is not None}
        found.append(Event(kind=sign.kind, place=place, speaker=prefix.speaker, text=prefix.text[:EXCERPT_CHARS], fields=fields))
    return found


def _around(text: str, anchor: str) -> str:
    if len(text) <= _LOOK_CHARS:
        return text
    at = max(0, text.find(anchor))
    return text[max(0, at - _LOOK_CHARS // 2) : at + _LOOK_CHARS // 2]


def milestone_in(line: str, prefix: Prefix, place: Place) -> Milestone | None:
    """The step that `line` reports, or None."""
    for step in STEPS:
        if step.anchor in line:
            return Milestone(name=step.name, order=step.order, place=place, speaker=prefix.speaker, text=prefix.text[:200])
    return None


def victim_reason(trace: Traceback) -> str | None:
    """Why an exception is only the answer to somebody else's failure, or None if it may be a cause."""
    last = trace.frames[-1].source if trace.frames else ""
    for known in VICTIMS:
        if known.exception is not None and not known.exception.search(trace.exception):
            continue
        if known.message is not None and not known.message.search(trace.message[:2000]):
            continue
        if known.source is not None and not known.source.search(last):
            continue
        return known.reason
    return None
