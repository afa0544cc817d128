"""GPD405: a GPU has not registered with the NVSwitch fabric, or the registration failed."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import driver_says, used
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for gpu, member in used(picture):
        fabric = gpu.fabric
        if fabric is None or not (fabric.state == "in progress" or (fabric.state == "completed" and fabric.status)):
            continue
        state = "still in progress" if fabric.state == "in progress" else f"completed with error {fabric.status}"
        says = driver_says(picture, gpu, f"registration with the NVSwitch fabric is {state}")
        steps = ("`systemctl status nvidia-fabricmanager` on the host", "`nvidia-smi -q | grep -A3 Fabric`")
        yield health_finding(
            picture, RULE, gpu, member, what=f"is not part of the fabric: {state}", evidence=(says,), steps=steps
        )


RULE = Rule(code="GPD405", name="fabric-not-ready", severity="error", evaluate=evaluate, specificity=94)
