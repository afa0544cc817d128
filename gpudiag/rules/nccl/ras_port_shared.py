"""GPD406: another job answered on the port of NCCL's service."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.base import Rule, finding
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    """Every process that reported is a stranger to this server."""
    reading = picture.observation.last.ras
    if not isinstance(reading, Ok) or not reading.value:
        return
    ours = {pid for _, p in picture.members() for pid in (p.pid, *p.ns_pids)}
    theirs = {pid for c in reading.value for pid in c.pids.values()}
    if not theirs or theirs & ours:
        return
    shown = ", ".join(map(str, sorted(theirs)[:8]))
    evidence = Evidence(
        source="nccl-ras", claim=f"the service answered for pids {shown}, none of which belongs to this server", at=picture.at
    )
    yield finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title="another job answers on the port of NCCL's RAS service",
        links=((evidence,),),
        culprits=(Culprit(node="outside"),),
        next_steps=("give each server its own port: NCCL_RAS_ADDR=localhost:28029 in its environment, then start it again",),
    )


RULE = Rule(code="GPD406", name="ras-port-shared", severity="warning", evaluate=evaluate, specificity=6)
