"""GPD318: nothing is asked of the server, so nothing moves. Idle, not hung."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.process import STOPPED
from gpudiag.model.server import Member
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.rest import at_rest
from gpudiag.waits.demand import demand
from gpudiag.waits.index import Index
from gpudiag.waits.motion import AWAKE, Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    ranks = [m for m in picture.server.ranks if picture.index.alive(m.pid)]
    if not ranks or picture.lost or any(p.state in STOPPED for _, p in picture.members()):
        return
    rest = at_rest(picture, ranks) if picture.demand.state == "unknown" else None
    if picture.demand.state == "pending" or (
        rest is None and any(not picture.any_motion(c.nodes, AWAKE) for c in picture.causes)
    ):
        return
    looked = picture.demand.state == "none"
    if not looked and rest is None and any(picture.motion(m.pid, m.pid) not in (Motion.FROZEN, Motion.POLLING) for m in ranks):
        return
    working = [m for m in ranks if _in_work_loop(picture, m)]
    if rest is None and any(m not in working and not (looked and _rests(picture, m)) for m in ranks):
        return
    asleep = all(picture.motion(m.pid, m.pid) is Motion.FROZEN for m in ranks)
    if not asleep and _asked_between(picture):
        # Requests come and go: that the ranks rest at this instant is chance.
        return
    links: list[Link] = []
    if looked:
        links.append((Evidence(source="socket-table", claim="no client connection waits for an answer", at=picture.at),))
    for member in working:
        known = picture.known(member.pid, member.pid)
        if known is not None:
            claim = f"{member.role} pid {member.pid} waits for work"
            links.append((picture.stack_evidence(member.pid, member.pid, known.frame, claim),))
    if rest is not None:
        still = Evidence(source="two-looks", claim="whether a client waits could not be looked at", at=picture.at)
        links += [rest, (still,)]
    elif len(working) < len(ranks):
        links.append(
            (Evidence(source="elimination", claim="no rank waits for anything but a frontend that nobody asks", at=picture.at),)
        )
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title="idle, not hung: no request is in flight",
        links=links,
        subjects=tuple(f"pid:{m.pid}" for m in ranks),
        next_steps=(
            "send one request with a deadline, then attach again while it waits: `curl -m 30 .../v1/completions -d ...`",
        ),
    )


def _asked_between(picture: Picture) -> bool:
    """Whether somebody who has an answer by now waited in an earlier look, or was answered since then on an open connection."""
    answered = picture.demand.answered_ms
    if answered is not None and answered < picture.observation.span_s * 1000:
        return True
    return any(demand(Index(s), picture.server).why == "client" for s in picture.observation.snapshots[:-1])


def _in_work_loop(picture: Picture, member: Member) -> bool:
    known = picture.known(member.pid, member.pid)
    return known is not None and known.need == "work"


def _rests(picture: Picture, member: Member) -> bool:
    """Whether a rank looks for work again and again, or waits, through others or not, for nobody but an idle frontend."""
    if picture.motion(member.pid, member.pid) in AWAKE:
        return True
    me = node.thread(member.pid, member.pid)
    ends = [c for c in picture.all_causes if me in c.waiters or me in c.nodes]
    return bool(ends) and all(picture.waits_for_clients(n) or picture.any_motion(c.nodes, AWAKE) for c in ends for n in c.nodes)


RULE = Rule(code="GPD318", name="idle-not-hung", severity="info", evaluate=evaluate, specificity=10)
