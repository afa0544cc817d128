"""What the PCIe checks share: which bridges lie between two GPUs, and whether the IOMMU translates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from gpudiag.model.facts import Bridge, Facts, PciGpu
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, skipped, unread
from gpudiag.rules.system.gpus import has_nvlink

TRANSLATING: Final = frozenset({"DMA", "DMA-FQ"})
"""Types of an IOMMU group whose addresses are translated: drivers/iommu/iommu.c, iommu_group_show_type."""


def peers(facts: Facts) -> tuple[PciGpu, ...] | Answer:
    """The GPUs if at least two talk to each other over PCIe; else how a check about that ends."""
    reading = facts.system.pci
    if not isinstance(reading, Ok):
        return unread(reading)
    if len(reading.value) < 2:
        return skipped("fewer than two GPUs: no peer traffic")
    gpus = facts.system.gpus
    if isinstance(gpus, Ok) and has_nvlink(gpus.value):
        return skipped("peer traffic takes NVLink")
    return reading.value


def translating(gpus: Sequence[PciGpu]) -> tuple[PciGpu, ...]:
    return tuple(g for g in gpus if isinstance(g.iommu_domain, Ok) and g.iommu_domain.value in TRANSLATING)


def between(gpus: Sequence[PciGpu]) -> tuple[Bridge, ...]:
    """The bridges that peer traffic of some pair crosses: those above one of the two, but not above both.

    A common bridge turns the traffic round below itself; its own redirection is not on the way.
    """
    crossed: dict[str, Bridge] = {}
    for one, other in combinations(gpus, 2):
        common = {b.address for b in one.bridges} & {b.address for b in other.bridges}
        crossed.update({b.address: b for b in (*one.bridges, *other.bridges) if b.address not in common})
    return tuple(crossed.values())


def is_virtual(facts: Facts) -> bool:
    return isinstance(facts.system.cpu, Ok) and facts.system.cpu.value.virtual
