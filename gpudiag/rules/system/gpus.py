"""What several checks ask about the GPUs."""

from __future__ import annotations

import re

from gpudiag.model.facts import Facts, Gpu, GpuSet
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, skipped, unread, values

_CONSUMER = re.compile(r"GeForce|RTX|TITAN", re.IGNORECASE)


def gpu_set(facts: Facts) -> GpuSet | Answer:
    """What NVML told; or how a check that needs it ends. Without any GPU on the PCI bus such a check does not apply."""
    reading = facts.system.gpus
    if isinstance(reading, Ok):
        return reading.value if reading.value.gpus else skipped("no GPU")
    pci = facts.system.pci
    if isinstance(pci, Ok) and not pci.value:
        return skipped("no NVIDIA GPU on the PCI bus")
    return unread(reading)


def has_nvlink(gpus: GpuSet) -> bool:
    """Whether every GPU has an active NVLink: then peer traffic does not cross PCIe."""
    return bool(gpus.gpus) and all(isinstance(g.nvlinks, Ok) and any(g.nvlinks.value) for g in gpus.gpus)


def consumer(gpus: GpuSet) -> bool:
    """Whether any is a workstation or gaming GPU, whose peer access over PCIe is the one that hangs in the field."""
    return any(_CONSUMER.search(g.name) for g in gpus.gpus)


def capabilities(facts: Facts) -> tuple[str, ...]:
    """The compute capabilities to judge: those asked about, else those of this machine; empty if neither is known."""
    if facts.asked.gpus_for:
        return facts.asked.gpus_for
    reading = facts.system.gpus
    return tuple(sorted(set(values(g.capability for g in reading.value.gpus)))) if isinstance(reading, Ok) else ()


def label(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.name})"


def node(gpu: Gpu) -> str:
    return f"gpu:{gpu.uuid}"
