"""Rules about the health of GPUs have one shape: what the driver says of a GPU that a rank uses."""

from __future__ import annotations

from collections.abc import Sequence

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.gpu import Gpu
from gpudiag.model.server import Member
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import label
from gpudiag.rules.nccl.ranks import hardware_culprit
from gpudiag.waits.picture import Picture


def health_finding(
    picture: Picture,
    rule: Rule[Picture],
    gpu: Gpu,
    member: Member | None,
    *,
    what: str,
    evidence: Sequence[Evidence],
    steps: Sequence[str],
) -> Finding:
    """`what` follows 'GPU 1 (rank 1) '. One GPU, one finding."""
    rank = f" ({label(picture, picture.index.owner(member.pid))})" if member is not None else ""
    return finding(
        rule.code,
        rule.name,
        rule.severity,
        title=f"GPU {gpu.index}{rank} {what}",
        links=(tuple(evidence),),
        culprits=(hardware_culprit(picture, gpu, member, explains=rule.severity == "error"),),
        next_steps=tuple(steps),
    )
