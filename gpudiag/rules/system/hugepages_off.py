"""GPD139: transparent huge pages are switched off."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.hugepages
    if not isinstance(reading, Ok):
        return unread(reading)
    if reading.value != "never":
        return passed(reading.value)
    made = CHECK.finding(
        "Transparent huge pages are off: loading weights through pinned memory gets slower",
        [seen("sysfs", "/sys/kernel/mm/transparent_hugepage/enabled is [never]")],
        ("as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD139",
        name="hugepages-off",
        severity="info",
        category="host",
        asks="may the kernel use huge pages?",
    ),
    evaluate=evaluate,
)
