"""GPD302: ranks of one group stand in, or launched, different collectives. GPD327 shares what is found and how it is told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Finding
from gpudiag.model.server import Member
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.counts import conflicts
from gpudiag.rules.hang.counts import report as report_counts
from gpudiag.rules.hang.recorded_mismatch import recorded
from gpudiag.rules.hang.recorded_mismatch import report as report_recorded
from gpudiag.rules.hang.standing import all_still, consequences, culprit, label
from gpudiag.waits.collectives import InCollective, in_collectives
from gpudiag.waits.flight import DIFFERS
from gpudiag.waits.graph import Cause
from gpudiag.waits.picture import Picture


def mismatches(picture: Picture) -> Iterator[tuple[Cause, dict[str, list[InCollective]]]]:
    """Cycles of ranks in which every edge says: you are in another collective. Grouped by operation, fewest ranks first."""
    for cause in picture.causes:
        inside = picture.edges_within(cause)
        if not cause.cyclic or not inside or not all(e.wait.kind == "collective" for e in inside):
            continue
        by_op: dict[str, list[InCollective]] = defaultdict(list)
        for one in in_collectives(picture):
            if node.thread(one.member.pid, one.member.pid) in cause.nodes:
                by_op[one.op].append(one)
        if len(by_op) > 1:
            yield cause, dict(sorted(by_op.items(), key=lambda kv: len(kv[1])))


def same_way(picture: Picture, groups: dict[str, list[InCollective]]) -> bool:
    """Whether the call differs and not the way to it: a function that calls one of the collectives is on every rank's stack."""
    everyone = [one for ones in groups.values() for one in ones]
    shared: set[tuple[str, str]] | None = None
    for one in everyone:
        stack = picture.stack(one.member.pid, one.member.pid)
        passed = {(f.file, f.function) for f in stack.frames} if stack else set()
        shared = passed if shared is None else shared & passed
    callers = {(one.known.caller.file, one.known.caller.function) for one in everyone if one.known.caller}
    return bool(callers & (shared or set()))


def evaluate(picture: Picture) -> Iterator[Finding]:
    standing = list(mismatches(picture))
    for cause, groups in standing:
        if same_way(picture, groups):
            yield from report(picture, cause, groups, RULE, "ranks call different collectives")
    # Where stacks show it they also show which way the ranks came, and GPD327 may say more.
    kinds = ("size", "dtype") if standing else DIFFERS
    yield from report_recorded(picture, kinds, RULE)
    if recorded(picture, kinds):
        return
    for conflict in conflicts(picture):
        if conflict.inside_one_communicator and not any(conflict.cause is cause for cause, _ in standing):
            found = report_counts(picture, conflict, RULE, "ranks launched different collectives", _STEPS)
            if found is not None:
                yield found


def report(
    picture: Picture, cause: Cause, groups: dict[str, list[InCollective]], rule: Rule[Picture], what: str
) -> Iterator[Finding]:
    """The finding for either rule: each operation with its ranks, the odd ones first."""
    members = [one for ones in groups.values() for one in ones]
    moved = all_still(picture, [node.thread(one.member.pid, one.member.pid) for one in members])
    if moved is None:
        return
    links: list[Link] = [
        (
            picture.stack_evidence(
                one.member.pid, one.member.pid, one.known.frame, f"{_rank(picture, one.member)} stands in {one.op}"
            ),
        )
        for one in members
    ]
    sides = ", ".join(f"{_ranks(picture, [o.member for o in ones])} in {op}" for op, ones in groups.items())
    yield finding(
        rule.code,
        rule.name,
        rule.severity,
        title=f"{what}: {sides}",
        links=[*links, *moved],
        culprits=tuple(
            culprit(picture, node.thread(one.member.pid, one.member.pid), frame=one.known.caller or one.known.frame)
            for one in members
        ),
        consequences=consequences(picture, cause),
        next_steps=_STEPS,
    )


def _rank(picture: Picture, member: Member) -> str:
    return label(picture, node.thread(member.pid, member.pid))


def _ranks(picture: Picture, members: list[Member]) -> str:
    names = [_rank(picture, m) for m in members]
    return names[0] if len(names) == 1 else f"ranks {', '.join(n.removeprefix('rank ') for n in names)}"


_STEPS = (
    "compare the lines named above: all ranks of a group must issue the same collectives in the same order",
    "look for a condition on rank, batch size or an exception that only some ranks took",
)

RULE = Rule(code="GPD302", name="collective-mismatch", severity="error", evaluate=evaluate, specificity=80)
