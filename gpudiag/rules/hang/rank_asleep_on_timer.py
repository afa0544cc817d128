"""GPD329: everybody waits for a thread that sleeps until a moment far away, in a line of its own program.

The least specific of all: a rank that is missing at a collective may well sleep, and is missing first of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.reading import value_or
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import (
    Terminal,
    at_rest,
    consequences,
    culprit,
    frame_of,
    label,
    standing,
    terminals,
    waited_for,
    waiting,
)
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture

LONG_S: Final = 30.0
"""Programs that try again after a pause pause for less: a retry of a download, a poll for a port or a file."""


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end, moved in at_rest(picture, terminals(picture)):
        left_s = _left_s(end)
        frame = frame_of(picture, end.node)
        if end.motion is not Motion.FROZEN or left_s < LONG_S or frame is None or not picture.edges_to(end.node):
            continue
        timer = Evidence(
            source="system-call",
            claim=f"the sleep of thread {end.tid} ends in {left_s:.0f} s by itself",
            excerpt="clock_nanosleep",
            at=picture.at,
        )
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, end.node)} sleeps in {frame.function} for another {left_s:.0f} s;"
            f" {waiting(picture, end.cause)}",
            links=(*waited_for(picture, end.cause), moved, standing(picture, end.node), (timer,)),
            culprits=(culprit(picture, end.node),),
            consequences=consequences(picture, end.cause),
            next_steps=(
                f"read {frame.where}: why it sleeps there, and whether a setting or a test switch asks for it",
                f"it goes on by itself in {left_s:.0f} s; look again then: gpudiag attach {picture.server.root_pid}",
            ),
        )


def _left_s(end: Terminal) -> float:
    return next((s.left_s for s in value_or(end.process.sleeps, ()) if s.tid == end.tid), 0.0)


RULE = Rule(code="GPD329", name="rank-asleep-on-timer", severity="error", evaluate=evaluate, specificity=-1)
