"""GPD316: a thread runs on the processor, outside any known wait, while others wait for it without a move."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.compile_in_progress import compiling_frame
from gpudiag.rules.hang.standing import consequences, culprit, label, standing, still, terminals, waited_for, waiting
from gpudiag.waits.motion import AWAKE, BUSY, SPIN_SHARE, Motion
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for end in terminals(picture):
        known = picture.known(end.pid, end.tid)
        if end.motion not in BUSY or (known is not None and known.kind is not None):
            continue
        if picture.motions.share(end.pid, end.tid) < SPIN_SHARE:
            continue
        stack = picture.stack(end.pid, end.tid)
        if stack is None or compiling_frame(stack) is not None or (end.member is not None and end.member.role == "starting"):
            continue
        frozen = [
            w
            for w in end.cause.waiters
            if (pid := node.pid_of(w)) and picture.motion(pid, node.tid_of(w) or pid) is Motion.FROZEN
        ]
        if not frozen or (end.member is not None and end.member.ranked and _all_run(picture)):
            continue
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, end.node)} computes on the processor; {waiting(picture, end.cause)}",
            links=(*waited_for(picture, end.cause), standing(picture, end.node), still(picture, frozen[0]) or ()),
            culprits=(culprit(picture, end.node),),
            consequences=consequences(picture, end.cause),
            next_steps=(
                (
                    f"see whether it moves: `gpudiag attach {picture.server.root_pid} --once --confirm`;"
                    " the line must change, or it loops there"
                ),
                f"profile it: `py-spy record --nonblocking -d 10 -p {end.pid} -o profile.svg`",
            ),
        )


def _all_run(picture: Picture) -> bool:
    """Whether it is one of several ranks that are all awake: nobody computes elsewhere, and GPD321 is what may be wrong."""
    ranks = [m for m in picture.server.ranks if picture.index.alive(m.pid)]
    return len(ranks) > 1 and all(picture.motion(m.pid, m.pid) in AWAKE for m in ranks)


RULE = Rule(code="GPD316", name="rank-busy-elsewhere", severity="warning", evaluate=evaluate, specificity=50)
