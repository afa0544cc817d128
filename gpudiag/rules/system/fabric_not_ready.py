"""GPD405 before a start: the NVSwitch fabric is not up, so CUDA will refuse with error 802."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread
from gpudiag.rules.system.gpus import gpu_set, node

_STATES: Final = {1: "not started", 2: "in progress"}


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    waiting = [(g, g.fabric_state.value) for g in gpus.gpus if isinstance(g.fabric_state, Ok) and g.fabric_state.value in _STATES]
    if not waiting:
        ready = any(isinstance(g.fabric_state, Ok) and g.fabric_state.value for g in gpus.gpus)
        unreadable = next((g.fabric_state for g in gpus.gpus if not isinstance(g.fabric_state, Ok)), None)
        if ready:
            return passed("the fabric is up")
        return skipped("no NVSwitch fabric") if unreadable is None else unread(unreadable)
    made = CHECK.finding(
        f"The NVSwitch fabric is {_STATES[waiting[0][1]]} on {len(waiting)} of {len(gpus.gpus)} GPUs",
        [seen("nvml", f"nvmlDeviceGetGpuFabricInfo state {waiting[0][1]}")],
        (
            f"systemctl start nvidia-fabricmanager; its version must be that of the driver, {gpus.driver.version}",
            "journalctl -u nvidia-fabricmanager -n 50",
        ),
        subjects=tuple(node(g) for g, _ in waiting),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD405",
        name="fabric-not-ready",
        severity="error",
        category="link",
        asks="is the NVSwitch fabric up?",
    ),
    evaluate=evaluate,
)
