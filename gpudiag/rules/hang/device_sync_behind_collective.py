"""GPD324: a host thread is stuck in a driver call behind a collective that can only end if that thread goes on."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, waiting
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        inside = [e for n in cause.nodes for e in picture.edges_from(n) if e.holder in cause.nodes]
        blocked = [e for e in inside if e.wait.kind == "device-sync"]
        if not cause.cyclic or not blocked or not any(e.wait.kind not in ("device-sync", "collective") for e in inside):
            continue
        threads = [n for n in cause.nodes if node.pid_of(n) is not None]
        moved = [picture.still_evidence(node.pid_of(n) or 0, node.tid_of(n) or 0) for n in threads]
        if not threads or any(m is None for m in moved):
            continue
        links: list[Link] = [e.wait.evidence for e in inside]
        links += [(m,) for m in moved if m is not None]
        first = blocked[0].waiter
        others = f"; {waiting(picture, cause)}" if picture.waiting_ranks(cause) else ""
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, first)} waits in the driver behind a collective, and that collective waits for it{others}",
            links=links,
            culprits=tuple(culprit(picture, n) for n in (first, *(t for t in threads if t != first))),
            consequences=consequences(picture, cause),
            next_steps=(
                "do not synchronise, allocate or load a module while a collective is in flight that this rank must still feed",
                "look at both lines: what the thread would do next is what the other side waits for",
            ),
        )


RULE = Rule(code="GPD324", name="device-sync-behind-collective", severity="error", evaluate=evaluate, specificity=79)
