"""GPD702: more ranks than GPUs."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.launch.needed import needed
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpus import gpu_set


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    want = needed(facts)
    if want is None:
        return skipped("the server spreads over several hosts")
    if any(isinstance(g.mig, Ok) and g.mig.value for g in gpus.gpus):
        return skipped("GPUs are divided (MIG), a rank takes a part of one")
    have = len(gpus.gpus)
    if want.gpus <= have:
        return passed(f"{plural(have, 'GPU')} for {plural(want.gpus, 'rank')}")
    made = CHECK.finding(
        f"{want.words} needs {want.gpus} GPUs, and this host has {have}",
        [seen("nvml", f"{plural(have, 'GPU')} here"), seen("config-file", f"asked for: {want.words}")],
        (_step(have, facts.asked.tp, want.gpus),),
    )
    return found([made], passed(""))


def _step(have: int, tp: int, wanted: int) -> str:
    """What fits here: a smaller tensor-parallel group beside the pipeline stages and replicas, as long as those fit at all."""
    others = wanted // tp
    if others > have:
        return f"fewer pipeline stages or replicas: there are {others} of them before any --tp; or more hosts: --nnodes"
    return f"--tp {largest(have // others, tp)}, or more hosts: --nnodes"


def largest(have: int, wanted: int) -> int:
    """The largest size up to `have` that divides the one that was wanted, since what can be divided by that can be by it."""
    return next((n for n in range(min(have, wanted), 0, -1) if wanted % n == 0), 1)


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD702",
        name="parallelism-exceeds-gpus",
        severity="error",
        category="launch",
        asks="are there as many GPUs as ranks?",
    ),
    evaluate=evaluate,
)
