"""GPD505 before a start: the hardware slows a GPU down, though nothing runs yet."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.system.gpus import gpu_set, label, node

_REASONS: Final = {0x8: "hardware slowdown", 0x20: "temperature (software)", 0x40: "temperature (hardware)", 0x80: "power brake"}
"""nvmlClocksEventReason*: idle (0x1) and the power cap (0x4) are part of normal work and not here."""


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    masks = [(g, g.clocks_event_reasons.value) for g in gpus.gpus if isinstance(g.clocks_event_reasons, Ok)]
    if not masks:
        first = gpus.gpus[0].clocks_event_reasons
        return passed("") if isinstance(first, Ok) else unread(first)
    slowed = [(g, mask, [word for bit, word in _REASONS.items() if mask & bit]) for g, mask in masks]
    made = (
        CHECK.finding(
            f"{label(gpu)} is slowed down: {', '.join(words)}",
            [seen("nvml", f"nvmlDeviceGetCurrentClocksEventReasons is {mask:#x}")],
            ("look at fans, air flow and power cables; nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",),
            subjects=(node(gpu),),
        )
        for gpu, mask, words in slowed
        if words
    )
    return found(made, passed("no slowdown by heat or power"))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD505",
        name="clocks-throttled",
        severity="warning",
        category="gpu",
        asks="do the GPUs run unhindered by heat and power?",
    ),
    evaluate=evaluate,
)
