"""GPD504 before a start: a GPU's PCIe link is narrower or slower than it can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, Gpu, PciGpu
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Ok, Reading
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unknown, unread
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpus import gpu_set, label, node

_CRIPPLED: Final = 4
_STEPS: Final = (
    "reseat the card or its riser, and look at the firmware's bifurcation setting of the slot",
    "a width below the card's own may be the slot's: compare with the board's manual",
)


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if not isinstance(gpus, Answer):
        made = [finding for gpu in gpus.gpus for finding in _by_nvml(gpu)]
        if made or any(_both(g.link_width, g.link_width_max) for g in gpus.gpus):
            return found(made, passed(f"full width on {plural(len(gpus.gpus), 'GPU')}"))
    pci = facts.system.pci
    if not isinstance(pci, Ok):
        return unread(pci)
    if not pci.value:
        return gpus if isinstance(gpus, Answer) else unknown("no PCI device to compare with")
    if all(g.link_width in ("", "0") for g in pci.value):
        return unknown("the link's width is not shown (virtual machine)", "look at it on the host")
    return found((f for g in pci.value for f in _by_sysfs(g)), passed(f"full width on {plural(len(pci.value), 'GPU')}"))


def _both(now: Reading[int], most: Reading[int]) -> tuple[int, int] | None:
    return (now.value, most.value) if isinstance(now, Ok) and isinstance(most, Ok) and most.value else None


def _by_nvml(gpu: Gpu) -> Iterator[Finding]:
    width, speed = _both(gpu.link_width, gpu.link_width_max), _both(gpu.link_gen, gpu.link_gen_max)
    if width and width[0] < width[1]:
        yield CHECK.finding(
            f"{label(gpu)} has a PCIe link of {width[0]} lanes; it can do {width[1]}",
            [seen("nvml", f"link width {width[0]}, at most {width[1]}")],
            _STEPS,
            subjects=(node(gpu),),
            severity="error" if width[0] <= _CRIPPLED else "warning",
        )
    # An idle GPU drops to the slowest speed to save power: only at full clocks does a low one say anything.
    awake = isinstance(gpu.performance_state, Ok) and gpu.performance_state.value == 0
    busy = isinstance(gpu.utilization_percent, Ok) and gpu.utilization_percent.value > 0
    if speed and speed[0] < speed[1] and awake and busy:
        yield CHECK.finding(
            f"{label(gpu)} runs its PCIe link at generation {speed[0]} under load; it can do {speed[1]}",
            [seen("nvml", f"link generation {speed[0]}, at most {speed[1]}, performance state 0")],
            _STEPS,
            subjects=(node(gpu),),
        )


def _by_sysfs(gpu: PciGpu) -> Iterator[Finding]:
    if gpu.link_width.isdigit() and gpu.link_width_max.isdigit() and 0 < int(gpu.link_width) < int(gpu.link_width_max):
        yield CHECK.finding(
            f"The GPU at {gpu.address} has a PCIe link of {gpu.link_width} lanes; it can do {gpu.link_width_max}",
            [seen("sysfs", f"current_link_width {gpu.link_width}, max_link_width {gpu.link_width_max}")],
            _STEPS,
            subjects=(f"file:/sys/bus/pci/devices/{gpu.address}",),
            severity="error" if int(gpu.link_width) <= _CRIPPLED else "warning",
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD504",
        name="pcie-link-degraded",
        severity="warning",
        category="link",
        asks="do the GPUs have all their PCIe lanes?",
    ),
    evaluate=evaluate,
)
