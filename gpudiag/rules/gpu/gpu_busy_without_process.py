"""GPD507: a GPU is busy all the time and no process has it open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.base import Rule
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import driver_says, inventory
from gpudiag.waits.picture import Picture

_BUSY_PERCENT: Final = 95


def evaluate(picture: Picture) -> Iterator[Finding]:
    """Only where the driver shows processes of other GPUs: in a container it may show none at all."""
    shown, first = inventory(picture), picture.observation.first.gpus
    if (
        shown is None
        or not picture.observation.has_change
        or not isinstance(first, Ok)
        or not any(g.processes for g in shown.gpus)
    ):
        return
    for gpu in shown.gpus:
        earlier = first.value.gpu(gpu.uuid)
        busy = [
            g.utilisation_percent or 0
            for g in (gpu, earlier)
            if g is not None and not g.processes and "processes" not in g.unread
        ]
        if len(busy) < 2 or min(busy) < _BUSY_PERCENT:
            continue
        says = driver_says(picture, gpu, f"utilisation {busy[0]} %, and no process uses it")
        guess = Evidence(source="absence", claim="a process of another container or pid namespace may be hidden", at=picture.at)
        steps = (
            "look from the host: `nvidia-smi`, `fuser -v /dev/nvidia*`",
            "reset the GPU if nobody uses it: `nvidia-smi --gpu-reset -i ID`",
        )
        yield health_finding(
            picture, RULE, gpu, None, what="is busy, and no process has it open", evidence=(says, guess), steps=steps
        )


RULE = Rule(code="GPD507", name="gpu-busy-without-process", severity="warning", evaluate=evaluate, specificity=6)
