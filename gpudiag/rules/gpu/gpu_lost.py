"""GPD506: a GPU does not answer any more, or the driver says that it must be reset."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Culprit, Evidence, Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import driver_says, inventory, used
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    shown = inventory(picture)
    for index, error in (shown.lost if shown is not None else {}).items():
        evidence = Evidence(source="driver", claim=f"GPU {index} does not answer: {error}", at=picture.at)
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"GPU {index} is lost: {error}",
            links=((evidence,),),
            culprits=(Culprit(node=f"gpu:{index}", gpu=str(index)),),
            next_steps=("look for the reason: `dmesg -T | grep -iE 'xid|nvrm|pcie'`", "reboot the host, or power it off and on"),
        )
    for gpu, member in used(picture):
        if gpu.recovery_action in (None, "none"):
            continue
        says = driver_says(picture, gpu, f"the driver asks for: {gpu.recovery_action}")
        steps = (f"do what the driver asks: {gpu.recovery_action}", "look for the reason: `dmesg -T | grep -iE 'xid|nvrm'`")
        yield health_finding(picture, RULE, gpu, member, what=f"needs {gpu.recovery_action}", evidence=(says,), steps=steps)


RULE = Rule(code="GPD506", name="gpu-lost", severity="error", evaluate=evaluate, specificity=96)
