"""GPD504: the PCIe link of a GPU runs with fewer lanes than card and slot have."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model.finding import Finding
from gpudiag.rules.base import Rule
from gpudiag.rules.gpu.health import health_finding
from gpudiag.rules.nccl.ranks import driver_says, used
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    """Lanes only: the generation falls to save power whenever the GPU idles, and comes back with load."""
    for gpu, member in used(picture):
        link = gpu.pcie
        if link is None or link.width is None or link.width_max is None or not 0 < link.width < link.width_max:
            continue
        says = driver_says(picture, gpu, f"its PCIe link has {link.width} of {link.width_max} lanes")
        steps = (f"`sudo lspci -s {gpu.pci} -vv | grep LnkSta` shows both ends", "reseat the card or riser; try another slot")
        yield health_finding(
            picture, RULE, gpu, member, what=f"runs on {link.width} of {link.width_max} PCIe lanes", evidence=(says,), steps=steps
        )


RULE = Rule(code="GPD504", name="pcie-link-degraded", severity="warning", evaluate=evaluate, specificity=6)
