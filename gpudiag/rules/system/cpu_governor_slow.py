"""GPD132: the CPUs save power while they feed GPUs."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.governors
    if not isinstance(reading, Ok):
        return unread(reading)
    slow = [g for g in reading.value if g != "performance"]
    if not slow:
        return passed("performance")
    made = CHECK.finding(
        f"The CPU governor is {', '.join(slow)}: launching kernels gets slower under light load",
        [seen("sysfs", "cpufreq/scaling_governor", " ".join(reading.value))],
        ("as root: cpupower frequency-set -g performance",),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD132",
        name="cpu-governor-slow",
        severity="info",
        category="host",
        asks="do the CPUs run at full speed?",
    ),
    evaluate=evaluate,
)
