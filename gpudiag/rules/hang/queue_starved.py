"""GPD328: one side waits for an answer, the other for a question: the message between them was lost."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, still, terminals, waited_for, waiting
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    yield from _idle_peer(picture)
    yield from _both_listen(picture)


def _idle_peer(picture: Picture) -> Iterator[Finding]:
    """The peer that owes the answer stands in its own wait for work."""
    for end in terminals(picture):
        known = picture.known(end.pid, end.tid)
        into = [e for e in picture.edges_to(end.node) if e.mode == "read" and e.wait.kind in ("ipc", "socket", "child")]
        moved = still(picture, end.pid, end.tid)
        if known is None or known.need != "work" or not into or moved is None or end.motion is not Motion.FROZEN:
            continue
        links: list[Link] = [*waited_for(picture, end.cause), standing(picture, end.pid, end.tid), moved]
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, into[0].waiter)} waits for an answer of {label(picture, end.node)}, which waits for work",
            links=links,
            culprits=(culprit(picture, end.node), culprit(picture, into[0].waiter)),
            consequences=consequences(picture, end.cause),
            next_steps=_STEPS,
        )


def _both_listen(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        inside = [e for n in cause.nodes for e in picture.edges_from(n) if e.holder in cause.nodes]
        if (
            not cause.cyclic
            or not inside
            or not all(e.mode == "read" and e.wait.kind in ("ipc", "socket", "child") for e in inside)
        ):
            continue
        members = [picture.member_of(n) for n in cause.nodes]
        if all(m is not None and m.ranked for m in members):
            continue
        moved = [still(picture, node.pid_of(n) or 0, node.tid_of(n) or 0) for n in cause.nodes]
        if any(m is None for m in moved):
            continue
        names = " and ".join(label(picture, n) for n in cause.nodes)
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{names} each wait for a message from the other; {waiting(picture, cause)}",
            links=[*(e.wait.evidence for e in inside), *(m for m in moved if m is not None)],
            culprits=tuple(culprit(picture, n) for n in sorted(cause.nodes, key=lambda n: _ranked(picture, n))),
            consequences=consequences(picture, cause),
            next_steps=_STEPS,
        )


def _ranked(picture: Picture, target: str) -> bool:
    member = picture.member_of(target)
    return member is not None and member.ranked


_STEPS = (
    "a message between the two was lost or never sent: look in the log for an exception between receiving a request and answering it",
    "restart the server: neither side will speak first",
)

RULE = Rule(code="GPD328", name="queue-starved", severity="error", evaluate=evaluate, specificity=56)
