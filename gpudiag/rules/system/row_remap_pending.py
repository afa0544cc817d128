"""GPD503 before a start: a GPU waits for a reset to replace bad memory rows, or has none left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, GpuSet
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.system.gpus import gpu_set, label, node


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    made = tuple(_faults(gpus))
    unreadable = next((g.rows_pending for g in gpus.gpus if not isinstance(g.rows_pending, Ok)), None)
    return found(made, passed("none pending") if unreadable is None else unread(unreadable))


def _faults(gpus: GpuSet) -> Iterator[Finding]:
    for gpu in gpus.gpus:
        if isinstance(gpu.rows_failed, Ok) and gpu.rows_failed.value:
            yield CHECK.finding(
                f"{label(gpu)} has bad memory rows that it can no longer replace",
                [seen("nvml", "nvmlDeviceGetRemappedRows: failure occurred")],
                ("take it out of service and have it replaced",),
                subjects=(node(gpu),),
                severity="error",
            )
        elif isinstance(gpu.rows_pending, Ok) and gpu.rows_pending.value:
            yield CHECK.finding(
                f"{label(gpu)} replaces bad memory rows at its next reset",
                [seen("nvml", "nvmlDeviceGetRemappedRows: pending")],
                ("reset it in the next maintenance window: nvidia-smi --gpu-reset -i N with no process on it, or reboot",),
                subjects=(node(gpu),),
            )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD503",
        name="row-remap-pending",
        severity="warning",
        category="gpu",
        asks="is any GPU waiting for a reset to replace bad memory?",
    ),
    evaluate=evaluate,
)
