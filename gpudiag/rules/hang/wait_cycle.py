"""GPD306: threads or processes wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.node import Node
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import all_listen, all_still, consequences, culprit, label, waiting
from gpudiag.waits.context import Edge
from gpudiag.waits.motion import Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        if not cause.cyclic:
            continue
        inside = picture.edges_within(cause)
        if all(e.wait.kind == "collective" for e in inside) or all_listen(picture, cause):
            continue
        if not all(_held(picture, n) for n in cause.nodes):
            continue
        chain = _order(cause.nodes, inside)
        links: list[Link] = [(one,) for e in inside for one in e.wait.evidence]
        certain = not any(one.source == "lock-text" for link in links for one in link)
        if not all(e.wait.kind == "lock" for e in inside):
            # Owners of locks are a proof at one instant; messages may have been on their way between two reads.
            moved = all_still(picture, cause.nodes)
            if moved is None:
                continue
            links += moved
        timed = [n for n in cause.nodes if _has_time_limit(picture, n)]
        if timed:
            claim = f"thread {node.tid_of(timed[0])} waits with a time limit, so the circle may open by itself"
            links.append((Evidence(source="absence", claim=claim, at=picture.at),))
        others = f"; {waiting(picture, cause)}" if picture.waiting_ranks(cause) else ""
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{_names(picture, chain)} wait for each other{others}",
            links=links,
            culprits=tuple(culprit(picture, n) for n in chain),
            consequences=consequences(picture, cause),
            next_steps=(
                _first_step(timed=bool(timed), certain=certain),
                (
                    "report the lines above with both stacks to whoever owns the code: two paths take the same locks in opposite"
                    " order"
                ),
            ),
        )


def _first_step(*, timed: bool, certain: bool) -> str:
    if timed:
        return "wait for the time limit and attach again"
    if not certain:
        return "a lock taken by acquire() may be released by another thread: if none does, this is a deadlock; look at both lines"
    return "this is a deadlock: it cannot end by itself; restart the server"


def _has_time_limit(picture: Picture, target: Node) -> bool:
    """futex(2) takes its time limit as the fourth argument; acquire(timeout=...) sets it."""
    call = picture.index.syscall(node.pid_of(target) or 0, node.tid_of(target) or 0)
    return call is not None and call.name == "futex" and len(call.args) > 3 and call.args[3] != 0


def _held(picture: Picture, target: Node) -> bool:
    pid, tid = node.pid_of(target), node.tid_of(target)
    return pid is not None and tid is not None and picture.motion(pid, tid) in (Motion.FROZEN, Motion.UNKNOWN, Motion.POLLING)


def _order(nodes: Sequence[Node], inside: Sequence[Edge]) -> list[Node]:
    """The nodes in the order in which they wait, starting at a main thread if there is one."""
    following = {e.waiter: e.holder for e in inside}
    start = next((n for n in nodes if node.tid_of(n) == node.pid_of(n)), nodes[0])
    chain = [start]
    while (nxt := following.get(chain[-1])) is not None and nxt not in chain:
        chain.append(nxt)
    return chain + [n for n in nodes if n not in chain]


def _names(picture: Picture, chain: Sequence[Node]) -> str:
    pids = {node.pid_of(n) for n in chain}
    if len(chain) == 1:
        return f"{label(picture, chain[0])}: thread {node.tid_of(chain[0])} waits for a lock that it holds itself; its threads"
    if len(pids) == 1:
        return f"{label(picture, chain[0])}: threads {' and '.join(str(node.tid_of(n)) for n in chain)}"
    return " and ".join(label(picture, n) for n in chain)


RULE = Rule(code="GPD306", name="wait-cycle", severity="error", evaluate=evaluate, specificity=75)
