"""GPD317: the chain of waits leaves this host."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import consequences, culprit, label, still, waited_for, waiting
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        target = cause.nodes[0]
        if not target.startswith("remote:"):
            continue
        waiter = picture.edges_to(target)[0].waiter
        moved = still(picture, waiter)
        if moved is None:
            continue
        address = target.removeprefix("remote:")
        others = f"; {waiting(picture, cause)}" if picture.waiting_ranks(cause) else ""
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, waiter)} waits for {address}, which is silent{others}",
            links=(*waited_for(picture, cause), moved),
            culprits=(culprit(picture, waiter),),
            subjects=(target, waiter),
            consequences=consequences(picture, cause),
            next_steps=(
                f"run `gpudiag attach --once --record node.gpudiag` on {address.rpartition(':')[0]} too",
                "then `gpudiag explain` both recordings together",
            ),
        )


RULE = Rule(code="GPD317", name="remote-peer-silent", severity="error", evaluate=evaluate, specificity=70)
