"""GPD129: the driver forgets a GPU whenever its last process ends."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.system.gpus import gpu_set, node


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    off = [g for g in gpus.gpus if isinstance(g.persistence, Ok) and not g.persistence.value]
    unreadable = next((g.persistence for g in gpus.gpus if not isinstance(g.persistence, Ok)), None)
    if not off:
        return passed("on") if unreadable is None else unread(unreadable)
    made = CHECK.finding(
        f"Persistence mode is off on {len(off)} of {len(gpus.gpus)} GPUs: each start waits for the driver, and settings get lost",
        [seen("nvml", "nvmlDeviceGetPersistenceMode is 0")],
        ("systemctl enable --now nvidia-persistenced, or as root: nvidia-smi -pm 1",),
        subjects=tuple(node(g) for g in off),
    )
    return found([made], passed(""))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD129",
        name="persistence-mode-off",
        severity="info",
        category="gpu",
        asks="does the driver keep the GPUs ready between two processes?",
    ),
    evaluate=evaluate,
)
