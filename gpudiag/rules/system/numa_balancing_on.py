"""GPD131: the kernel moves pages between NUMA nodes while the server runs."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.numa_balancing
    if not isinstance(reading, Ok):
        return unread(reading)
    if not reading.value:
        return passed("off")
    pci = facts.system.pci
    if isinstance(pci, Ok) and not pci.value:
        return skipped("no NVIDIA GPU on the PCI bus")
    made = CHECK.finding(
        "Automatic NUMA balancing is on: it unmaps pages of the server to see who uses them, and stalls it",
        [seen("sysfs", "kernel.numa_balancing is not 0")],
        ("as root: sysctl kernel.numa_balancing=0, and a line in /etc/sysctl.d to keep it",),
        subjects=("file:/proc/sys/kernel/numa_balancing",),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD131",
        name="numa-balancing-on",
        severity="warning",
        category="host",
        asks="does the kernel leave the server's memory where it is?",
    ),
    evaluate=evaluate,
)
