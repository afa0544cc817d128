"""GPD507 before a start: a GPU is fully busy and nobody is seen to use it, the mark of a wedged one."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen
from gpudiag.rules.system.gpus import gpu_set, label, node

_BUSY: Final = 95


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    wedged = [
        g
        for g in gpus.gpus
        if isinstance(g.utilization_percent, Ok)
        and g.utilization_percent.value >= _BUSY
        and isinstance(g.processes, Ok)
        and not g.processes.value
    ]
    made = (
        CHECK.finding(
            f"{label(gpu)} is fully busy and no process is listed on it",
            [
                seen("nvml", f"utilisation at least {_BUSY} %"),
                seen("absence", "no compute process is listed; inside a container those of others are never listed"),
            ],
            (
                "outside the container, as root: fuser -v /dev/nvidia*",
                "if nobody has it open, the GPU is wedged (a peer copy that never ended does that): reset it or reboot",
            ),
            subjects=(node(gpu),),
        )
        for gpu in wedged
    )
    return found(made, passed("no GPU is busy on its own"))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD507",
        name="gpu-busy-without-process",
        severity="error",
        category="gpu",
        asks="is no GPU busy without a process?",
    ),
    evaluate=evaluate,
)
