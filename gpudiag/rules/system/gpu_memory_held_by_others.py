"""GPD115: memory of a GPU is taken before the server starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, Gpu
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.preflight.words import size
from gpudiag.rules.system.gpus import gpu_set, label, node

_LEAST: Final = 1 << 30
_MUCH: Final = 0.10
"""Engines plan with 85 to 90 % of the memory: what is taken beyond the rest does not fit beside them."""


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    unreadable = next((g.memory_used_bytes for g in gpus.gpus if not isinstance(g.memory_used_bytes, Ok)), None)
    made = [finding for gpu in gpus.gpus for finding in _held(gpu)]
    if not made and unreadable is not None:
        return unread(unreadable)
    most = max((g.memory_used_bytes.value for g in gpus.gpus if isinstance(g.memory_used_bytes, Ok)), default=0)
    return found(made, passed(f"at most {size(most)} taken on a GPU"))


def _held(gpu: Gpu) -> Iterator[Finding]:
    used, total = gpu.memory_used_bytes, gpu.memory_bytes
    if not isinstance(used, Ok) or not isinstance(total, Ok) or used.value < _LEAST:
        return
    processes = gpu.processes.value if isinstance(gpu.processes, Ok) else ()
    listed = "\n".join(
        f"pid {p.pid} {p.name or '(not visible here: another container?)'} {size(p.memory_bytes)}" for p in processes
    )
    visible = [p for p in processes if p.name]
    if visible:
        step = f"if that is an old server: gpudiag attach {visible[0].pid}; else end it"
    else:
        step = "no owner is visible here: on the host, as root: fuser -v /dev/nvidia*"
    yield CHECK.finding(
        f"{size(used.value)} of {size(total.value)} of {label(gpu)} are taken",
        [seen("nvml", f"{size(used.value)} in use, {len(processes)} processes listed", listed)],
        (step, "or plan with less: --mem-fraction-static (SGLang), --gpu-memory-utilization (vLLM)"),
        culprits=tuple(Culprit(node=f"pid:{p.pid}", pid=p.pid, gpu=gpu.uuid) for p in visible),
        subjects=(node(gpu),),
        severity="error" if used.value > total.value * _MUCH else "warning",
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD115",
        name="gpu-memory-held-by-others",
        severity="error",
        category="gpu",
        asks="is the memory of the GPUs free?",
    ),
    evaluate=evaluate,
)
