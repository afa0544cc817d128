"""GPD404 before a start: an NVLink is down, or GPUs have different numbers of them."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unread
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpus import gpu_set, label, node


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    links = {g.index: (g, g.nvlinks.value) for g in gpus.gpus if isinstance(g.nvlinks, Ok)}
    if not any(any(states) for _, states in links.values()):
        unreadable = next((g.nvlinks for g in gpus.gpus if not isinstance(g.nvlinks, Ok)), None)
        return skipped("the GPUs have no NVLink") if unreadable is None else unread(unreadable)
    most = max(sum(states) for _, states in links.values())
    weak = [(gpu, states) for gpu, states in links.values() if not all(states) or sum(states) < most]
    made = (
        CHECK.finding(
            f"{label(gpu)} has {sum(states)} of {plural(max(most, len(states)), 'NVLink')} up",
            [seen("nvml", "nvmlDeviceGetNvLinkState", " ".join("up" if s else "down" for s in states))],
            (
                "nvidia-smi nvlink -s and -e show which and its errors",
                "drain the machine and reset the GPU; if it stays down, have it replaced",
            ),
            subjects=(node(gpu),),
        )
        for gpu, states in weak
    )
    return found(made, passed(f"{plural(most, 'link')} up on each of {plural(len(links), 'GPU')}"))


CHECK: Final = Check(
    info=CheckInfo(code="GPD404", name="nvlink-down", severity="error", category="link", asks="are all NVLinks up?"),
    evaluate=evaluate,
)
