"""GPD321: every rank runs and no request gets an answer."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.metrics import TokenCounts
from gpudiag.model.reading import Ok
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.compile_in_progress import building
from gpudiag.rules.hang.standing import culprit, label
from gpudiag.waits.graph import Cause
from gpudiag.waits.motion import AWAKE
from gpudiag.waits.picture import Picture

MIN_AGE_S = 30.0
"""A request may take this long to its first byte on a healthy server (long prompt, cold caches)."""

_COUNT_TOKENS = (
    "look at the token counters twice: `curl -s .../metrics | grep generation_tokens_total`;"
    " if they stand still, it is a livelock"
)


def evaluate(picture: Picture) -> Iterator[Finding]:
    demand = picture.demand
    old = demand.why == "client" and demand.age_s is not None and demand.age_s >= MIN_AGE_S
    if not old or not picture.long_look or _sent(picture) != 0 or _compiles(picture) or _launches(picture):
        return
    if picture.generates is not None:
        return
    ranks = [m for m in picture.server.ranks if picture.index.alive(m.pid)]
    active = [m for m in ranks if picture.motion(m.pid, m.pid) in AWAKE]
    if not ranks or len(active) < len(ranks) or any(not _waits_for_work_at_hand(picture, c) for c in picture.causes):
        return
    moves = Evidence(
        source="long-look",
        claim=f"all {len(ranks)} ranks ran in {picture.looks_over}, and not a byte went to a client",
        at=picture.at,
    )
    still = [] if picture.tokens is None else [_stood_still(picture.tokens, picture.at)]
    guess = Evidence(source="absence", claim="whether steps are retried or merely long is not visible from here", at=picture.at)
    first = node.process(ranks[0].pid)
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"all ranks run, and no request has been answered for {demand.age_s:.0f} s",
        links=(demand.evidence, (moves, *still), (guess,)),
        culprits=tuple(culprit(picture, node.process(m.pid)) for m in ranks),
        next_steps=(
            *(() if still else (_COUNT_TOKENS,)),
            (
                f"see where {label(picture, first)} spends its time:"
                f" `py-spy record --nonblocking -d 10 -p {ranks[0].pid} -o profile.svg`"
            ),
        ),
    )


def _stood_still(counted: TokenCounts, at: float) -> Evidence:
    claim = f"the server's own counters stood still at {counted.after:.0f} tokens for {counted.over_s:.0f} s"
    return Evidence(source="token-counts", claim=claim, at=at)


def _compiles(picture: Picture) -> bool:
    """Whether a compiler works, or has just ended, below the server, or a rank builds: then a request waits for a kernel."""
    compilers = [m.pid for m in picture.server.members if m.role == "compiler"]
    worked = any(not picture.index.alive(pid) or picture.motion(pid, pid) in AWAKE for pid in compilers)
    return worked or building(picture) is not None


def _launches(picture: Picture) -> bool:
    """Whether ranks launched collectives between the looks: one that answers without streaming computes step after step.

    Counts that stand still say nothing: those of a captured graph never move.
    """
    return any(end.before is not None and not end.unmoved for group in picture.communicators for end in group.ends)


def _waits_for_work_at_hand(picture: Picture, cause: Cause) -> bool:
    """Whether it is only a frontend that waits for the answer of ranks, which is what it does while they work."""
    ranked = {m.pid for m in picture.server.ranks}
    waited_for = {node.pid_of(n) for n in cause.nodes}
    return waited_for <= ranked and not any(node.pid_of(w) in ranked for w in cause.waiters)


def _sent(picture: Picture) -> int | None:
    """Bytes that the frontends sent to clients between the looks; None if unknown."""
    first, last = picture.observation.first.sockets, picture.observation.last.sockets
    if not isinstance(first, Ok) or not isinstance(last, Ok):
        return None
    fronts = set(picture.demand.frontends)
    owned = {inode for inode, who in picture.index.holders.items() if any(p in fronts for p, _ in who)}
    then = {s.inode: s.bytes_sent or 0 for s in first.value if s.inode in owned}
    return sum((s.bytes_sent or 0) - then.get(s.inode, 0) for s in last.value if s.inode in owned and s.family == "tcp")


RULE = Rule(code="GPD321", name="no-progress-while-running", severity="warning", evaluate=evaluate, specificity=20)
