"""GPD503: a GPU must be reset before a faulty row of its memory is replaced, or it has no spare row left."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import driver_says, used
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for gpu, member in used(picture):
        memory = gpu.memory
        if memory is None or not (memory.remap_pending or memory.remap_failed):
            continue
        failed = bool(memory.remap_failed)
        claim = (
            "remapping of a memory row failed: no spare row is left"
            if failed
            else "a memory row waits for a reset to be remapped"
        )
        says = driver_says(picture, gpu, claim)
        what = "has a memory row that could not be replaced" if failed else "has a faulty memory row that a reset would replace"
        step = "have the GPU replaced" if failed else "reset the GPU when it is free: `nvidia-smi --gpu-reset -i ID`"
        yield health_finding(
            picture, RULE, gpu, member, what=what, evidence=(says,), steps=(step, "`nvidia-smi -q -d ROW_REMAPPER`")
        )


RULE = Rule(code="GPD503", name="row-remap-pending", severity="warning", evaluate=evaluate, specificity=6)
