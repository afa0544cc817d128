"""GPD304: a rank of a live group is gone, and the others wait for it or it did not end cleanly."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, waited_for, waiting
from gpudiag.waits.lost import Lost
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for gone in picture.lost:
        cause = picture.cause_of(gone.node)
        in_store = any(e.wait.kind == "store" for e in picture.edges_to(gone.node))
        if (in_store and gone.pid is None) or (cause is None and not _died_badly(gone)):
            continue
        links: list[Link] = [(gone.evidence,)]
        if cause is not None:
            links += waited_for(picture, cause)
        waiters = f"; {waiting(picture, cause)}" if cause is not None else ""
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, gone.node)} is dead{waiters}",
            links=links,
            culprits=(culprit(picture, gone.node),),
            consequences=consequences(picture, cause),
            next_steps=(
                "look for how it died: the server's log, `dmesg -T | grep -iE 'killed process|segfault|xid'`",
                "restart the server: the group cannot go on without this rank",
            ),
        )


def _died_badly(gone: Lost) -> bool:
    """Nobody was seen to wait for it: then only an exit that was no clean end counts."""
    return gone.pid is not None and gone.exit_code is not None and gone.exit_code != 0


RULE = Rule(code="GPD304", name="rank-dead", severity="error", evaluate=evaluate, specificity=80)
