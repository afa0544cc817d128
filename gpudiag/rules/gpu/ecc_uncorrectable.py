"""GPD502: a GPU counted memory errors that it could not correct since the driver was loaded."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import driver_says, used
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for gpu, member in used(picture):
        count = gpu.memory.ecc_uncorrected_volatile if gpu.memory is not None else None
        if not count:
            continue
        says = driver_says(picture, gpu, f"{count} uncorrectable ECC errors since the driver was loaded")
        steps = (
            "take the GPU out of service and reset it: `nvidia-smi --gpu-reset -i ID`",
            "`nvidia-smi -q -d ECC,ROW_REMAPPER`",
        )
        yield health_finding(picture, RULE, gpu, member, what="has uncorrectable memory errors", evidence=(says,), steps=steps)


RULE = Rule(code="GPD502", name="ecc-uncorrectable", severity="error", evaluate=evaluate, specificity=95)
