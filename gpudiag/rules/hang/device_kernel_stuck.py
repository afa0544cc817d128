"""GPD310: a kernel on one GPU does not end, and it is not the collective that the other ranks wait in."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.model.kernel import ResidentKernel
from gpudiag.model.server import Member
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.devices import kernel_culprit, name_the_kernel, rank_of_kernel, resident_all_along
from gpudiag.rules.hang.standing import consequences, label, waited_for, waiting
from gpudiag.waits import kernels
from gpudiag.waits.communicators import Lead, leads
from gpudiag.waits.gpus import Device
from gpudiag.waits.graph import Cause
from gpudiag.waits.nccl import lead_evidence
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        found = rank_of_kernel(picture, cause.nodes[0])
        if cause.cyclic or found is None or not picture.observation.has_change:
            continue
        member, device = found
        named = kernels.stuck(picture, member.pid)
        owed = _owed(picture, member.pid)
        if named is not None:
            yield _named(picture, cause, member, device, named, owed)
        elif owed and kernels.waits_for_peers(picture, member.pid) is None:
            yield _unnamed(picture, cause, member, device, owed)


def _named(picture: Picture, cause: Cause, member: Member, device: Device, kernel: ResidentKernel, owed: list[Lead]) -> Finding:
    """A dump says which kernel it is: nothing has to be concluded from counts."""
    who = label(picture, picture.index.owner(member.pid))
    links: list[Link] = [(kernels.evidence(picture, member, kernel),), *waited_for(picture, cause)]
    links.append((resident_all_along(picture, device),))
    others = f"; {waiting(picture, cause, (picture.index.owner(member.pid),))}" if len(picture.waiting_ranks(cause)) > 1 else ""
    return finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"kernel {kernels.place(kernel)} on GPU {device.gpu.index} ({who}) does not end{others}",
        links=links,
        culprits=(_culprit(picture, member, device, kernel),),
        subjects=(device.node,),
        consequences=consequences(picture, cause),
        notes=tuple(lead_evidence(lead, picture) for lead in owed[:8]),
        next_steps=(
            "look at that line: what it waits for never comes" if kernel.file else "look at what this kernel waits for",
            "leave that kernel out, or use another implementation of it, to serve until it is mended",
            *(("restart the server: the dump has ended ranks of it",) if kernels.ended(picture) else ()),
        ),
    )


def _culprit(picture: Picture, member: Member, device: Device, kernel: ResidentKernel) -> Culprit:
    """The place in the kernel's source; without one, that from which the host waits."""
    host = kernel_culprit(picture, member, device)
    known = kernel.file is not None
    return Culprit(
        node=host.node,
        pid=host.pid,
        tid=host.tid,
        rank=host.rank,
        gpu=host.gpu,
        file=kernel.file if known else host.file,
        line=kernel.line if known else host.line,
        function=kernel.function if known else host.function,
        kernel=kernel.name,
    )


def _unnamed(picture: Picture, cause: Cause, member: Member, device: Device, owed: list[Lead]) -> Finding:
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
    return finding(
        RULE.code,
        RULE.name,
        RULE.severity,
        title=f"{who} waits for a kernel on GPU {device.gpu.index} that does not end; {ranks} rank{'s' if ranks != 1 else ''}"
        f" wait{'s' if ranks == 1 else ''} for it in {missing}",
        links=links,
        culprits=(kernel_culprit(picture, member, device),),
        subjects=(device.node,),
        consequences=consequences(picture, cause),
        next_steps=(name_the_kernel(picture, member.pid), "look at the last launch before the line where the rank stands"),
    )


def _owed(picture: Picture, pid: int) -> list[Lead]:
    """Collectives that other ranks launched and this one has not."""
    return [lead for group in picture.communicators for lead in leads(group) if lead.behind.pid == pid]


RULE = Rule(code="GPD310", name="device-kernel-stuck", severity="error", evaluate=evaluate, specificity=70)
