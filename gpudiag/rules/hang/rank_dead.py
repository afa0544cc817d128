"""GPD304: a rank of a live group is gone, and the others wait for it or it did not end cleanly."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Evidence, Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, waited_for, waiting
from gpudiag.waits.lost import Lost
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for gone in picture.lost:
        cause = picture.cause_of(gone.node)
        in_store = any(e.wait.kind == "store" for e in picture.edges_to(gone.node))
        if (in_store and gone.pid is None) or (cause is None and _may_have_ended_well(picture, gone)):
            continue
        links: list[Link] = [(gone.evidence,)]
        if cause is None and gone.exit_code is None:
            claim = "how it ended, and whether anybody waits for it, may not be read"
            links.append((Evidence(source="absence", claim=claim, at=picture.at),))
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


def _may_have_ended_well(picture: Picture, gone: Lost) -> bool:
    """Nobody was seen to wait for it: then it may have been told to end. Only the remains of a process that failed count."""
    remains = gone.pid is not None and gone.pid in picture.index.by_pid
    return not remains or gone.exit_code == 0 or not picture.index.alive(picture.server.root_pid)


RULE = Rule(code="GPD304", name="rank-dead", severity="error", evaluate=evaluate, specificity=80)
