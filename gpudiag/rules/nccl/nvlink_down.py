"""GPD404: some NVLinks of a GPU are down while others are up."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import driver_says, inventory, used
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    """Links that are down on every GPU alike are not wired: only a GPU with fewer links than its likes is reported."""
    shown = inventory(picture)
    if shown is None:
        return
    for gpu, member in used(picture):
        link = gpu.nvlink
        likes = [g.nvlink.links_up for g in shown.gpus if g.name == gpu.name and g.nvlink is not None]
        if link is None or not likes or link.links_up >= max(likes):
            continue
        down = ", ".join(map(str, link.links_down)) or "unknown"
        says = driver_says(
            picture, gpu, f"{link.links_up} of {max(likes)} NVLinks are up (down: {down}); another GPU of its kind has them all"
        )
        steps = (
            "`nvidia-smi nvlink -s` on every GPU; `dmesg -T | grep -iE 'xid.*74|nvlink'`",
            "reset the GPUs, or restart the fabric manager",
        )
        yield health_finding(
            picture, RULE, gpu, member, what=f"has {max(likes) - link.links_up} NVLinks down", evidence=(says,), steps=steps
        )


RULE = Rule(code="GPD404", name="nvlink-down", severity="error", evaluate=evaluate, specificity=94)
