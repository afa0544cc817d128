"""GPD318: nothing is asked of the server, so nothing moves. Idle, not hung."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.process import STOPPED
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import culprit
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    ranks = [m for m in picture.server.ranks if picture.index.alive(m.pid)]
    if not ranks or picture.lost or any(p.state in STOPPED for _, p in picture.members()):
        return
    if picture.demand.state == "pending" or _stuck(picture):
        return
    looked = picture.demand.state == "none"
    in_work_loop = [m for m in ranks if (k := picture.known(m.pid, m.pid)) is not None and k.need == "work"]
    if not looked and len(in_work_loop) < len(ranks):
        return
    links: list[Link] = []
    if looked:
        links.append((Evidence(source="socket-table", claim="no client connection waits for an answer", at=picture.at),))
    for member in in_work_loop:
        known = picture.known(member.pid, member.pid)
        if known is not None:
            links.append(
                (picture.stack_evidence(member.pid, member.pid, known.frame, f"{member.role} pid {member.pid} waits for work"),)
            )
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title="idle, not hung: no request is in flight",
        links=links,
        culprits=tuple(culprit(picture, f"pid:{m.pid}") for m in ranks[:1]),
        subjects=tuple(f"pid:{m.pid}" for m in ranks),
        next_steps=(
            "send one request with a deadline, then attach again while it waits: `curl -m 30 .../v1/completions -d ...`",
        ),
    )


def _stuck(picture: Picture) -> bool:
    """Somebody waits for an answer from a thread that does not move, request or not."""
    for cause in picture.causes:
        moving = any(_moves(picture, n) for n in cause.nodes)
        if not moving:
            return True
    return False


def _moves(picture: Picture, target: str) -> bool:
    pid = node.pid_of(target)
    return pid is not None and picture.motion(pid, node.tid_of(target) or pid) in (Motion.MOVING, Motion.SPINNING)


RULE = Rule(code="GPD318", name="idle-not-hung", severity="info", evaluate=evaluate, specificity=10)
