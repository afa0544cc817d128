"""GPD310: a kernel on one GPU does not end, and it is not the collective that the other ranks wait in."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Evidence, Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.devices import NAME_THE_KERNEL, kernel_culprit, rank_of_kernel, resident_all_along
from gpudiag.rules.hang.standing import consequences, label, waited_for
from gpudiag.waits.communicators import Lead, leads
from gpudiag.waits.nccl import lead_evidence
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        found = rank_of_kernel(picture, cause.nodes[0])
        if cause.cyclic or found is None or not picture.observation.has_change:
            continue
        member, device = found
        owed = _owed(picture, member.pid)
        if not owed:
            continue
        who = label(picture, picture.index.owner(member.pid))
        missing = f"{owed[0].operation} {owed[0].owed}"
        not_it = Evidence(
            source="elimination",
            claim=f"{who} has not launched {missing}, which the others wait in, so the kernel on its GPU is another one",
            at=picture.at,
        )
        links: list[Link] = [tuple(lead_evidence(lead, picture) for lead in owed[:8]), *waited_for(picture, cause), (not_it,)]
        links.append((resident_all_along(picture, device),))
        ranks = len({lead.ahead.pid for lead in owed})
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{who} waits for a kernel on GPU {device.gpu.index} that does not end; {ranks} rank{'s' if ranks != 1 else ''}"
            f" wait{'s' if ranks == 1 else ''} for it in {missing}",
            links=links,
            culprits=(kernel_culprit(picture, member, device),),
            subjects=(device.node,),
            consequences=consequences(picture, cause),
            next_steps=(NAME_THE_KERNEL.format(pid=member.pid), "look at the last launch before the line where the rank stands"),
        )


def _owed(picture: Picture, pid: int) -> list[Lead]:
    """Collectives that other ranks launched and this one has not."""
    return [lead for group in picture.communicators for lead in leads(group) if lead.behind.pid == pid]


RULE = Rule(code="GPD310", name="device-kernel-stuck", severity="error", evaluate=evaluate, specificity=70)
