"""GPD328: one side waits for an answer, the other for a question: the message between them was lost."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.model.node import Node
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import (
    all_listen,
    all_still,
    at_rest,
    consequences,
    culprit,
    label,
    standing,
    terminals,
    waited_for,
    waiting,
)
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    yield from _idle_peer(picture)
    yield from _both_listen(picture)


def _idle_peer(picture: Picture) -> Iterator[Finding]:
    """The peer that owes the answer stands in its own wait for work."""
    for end, moved in at_rest(picture, terminals(picture)):
        known = picture.known(end.pid, end.tid)
        into = [e for e in picture.edges_to(end.node) if e.mode == "read" and e.wait.kind in ("ipc", "socket", "child")]
        if known is None or known.need != "work" or not into or end.motion is not Motion.FROZEN:
            continue
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, into[0].waiter)} waits for an answer of {label(picture, end.node)}, which waits for work",
            links=(*waited_for(picture, end.cause), standing(picture, end.node), moved),
            culprits=(culprit(picture, end.node), culprit(picture, into[0].waiter)),
            consequences=consequences(picture, end.cause),
            next_steps=_STEPS,
        )


def _both_listen(picture: Picture) -> Iterator[Finding]:
    """Each waits to hear from the other."""
    for cause in picture.causes:
        moved = all_still(picture, cause.nodes) if cause.cyclic and all_listen(picture, cause) else None
        if moved is None:
            continue
        names = " and ".join(label(picture, n) for n in cause.nodes)
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{names} each wait for a message from the other; {waiting(picture, cause)}",
            links=[*(e.wait.evidence for e in picture.edges_within(cause)), *moved],
            culprits=tuple(culprit(picture, n) for n in sorted(cause.nodes, key=lambda n: _ranked(picture, n))),
            consequences=consequences(picture, cause),
            next_steps=_STEPS,
        )


def _ranked(picture: Picture, target: Node) -> bool:
    member = picture.member_of(target)
    return member is not None and member.ranked


_STEPS = (
    (
        "a message between the two was lost or never sent: look in the log for an exception between receiving a request and"
        " answering it"
    ),
    "restart the server: neither side will speak first",
)

RULE = Rule(code="GPD328", name="queue-starved", severity="error", evaluate=evaluate, specificity=56)
