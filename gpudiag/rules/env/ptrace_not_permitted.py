"""GPD109: the kernel does not let gpudiag read the target's memory, so Python stacks are missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.model.reading import Unavailable
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.preflight.words import plural
from gpudiag.waits.picture import Picture

_REFUSED = re.compile(r"permi|ptrace|denied|refuses|dumpable|belongs to uid|another user", re.IGNORECASE)


def evaluate(picture: Picture) -> Iterator[Finding]:
    refused = [
        (p, p.stacks) for _, p in picture.members() if isinstance(p.stacks, Unavailable) and _REFUSED.search(p.stacks.reason)
    ]
    if not refused:
        return
    process, reading = refused[0]
    host = picture.observation.last.host
    processes = plural(len(refused), "process", "processes")
    yama = host.yama_scope if host.yama_scope is not None else "none"
    evidence = Evidence(
        source="permissions",
        claim=f"Python stacks of {processes} could not be read: {reading.reason}",
        excerpt=f"uid {host.observer_uid}, CAP_SYS_PTRACE {'yes' if host.can_trace else 'no'}, yama scope {yama}",
        at=picture.at,
    )
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"gpudiag may not look inside {processes} of the server",
        links=((evidence,),),
        culprits=(Culprit(node=f"pid:{process.pid}", pid=process.pid),),
        subjects=tuple(f"pid:{p.pid}" for p, _ in refused),
        next_steps=(reading.help,) if reading.help else (),
    )


RULE = Rule(code="GPD109", name="ptrace-not-permitted", severity="warning", evaluate=evaluate, specificity=5)
