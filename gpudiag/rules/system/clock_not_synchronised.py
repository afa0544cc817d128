"""GPD141: no time service keeps the clock of this machine."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread


def evaluate(facts: Facts) -> Answer:
    reading, cpu = facts.system.clock_synchronised, facts.system.cpu
    if not isinstance(reading, Ok):
        return unread(reading)
    if reading.value:
        return passed("a time service keeps it")
    if isinstance(cpu, Ok) and cpu.value.virtual:
        return skipped("a virtual machine without a time service of its own: its host keeps the time")
    made = CHECK.finding(
        "Nothing keeps this machine's clock: what several nodes wrote cannot be put in order by time",
        [seen("system-call", "adjtimex reports STA_UNSYNC")],
        ("timedatectl set-ntp true, or start chronyd",),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD141",
        name="clock-not-synchronised",
        severity="info",
        category="host",
        asks="does a time service keep the clock, so that logs of several nodes agree?",
    ),
    evaluate=evaluate,
)
