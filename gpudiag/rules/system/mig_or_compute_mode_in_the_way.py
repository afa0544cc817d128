"""GPD130: a GPU is cut in slices, or lets only one process in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, Gpu, GpuSet
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen
from gpudiag.rules.system.gpus import gpu_set, label, node

_PROHIBITED: Final = 2
_EXCLUSIVE: Final = frozenset({1, 3})


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    return (
        gpus
        if isinstance(gpus, Answer)
        else found(_faults(gpus, facts.asked.tp), passed("whole GPUs, open to several processes"))
    )


def _faults(gpus: GpuSet, tp: int) -> Iterator[Finding]:
    for gpu in gpus.gpus:
        if isinstance(gpu.mig, Ok) and gpu.mig.value:
            yield CHECK.finding(
                f"{label(gpu)} is divided by MIG: slices have no peer access, NCCL cannot join them",
                [seen("nvml", "nvmlDeviceGetMigMode is enabled")],
                ("an administrator: nvidia-smi -i N -mig 0 (ends what runs on it); or serve on one slice with --tp 1",),
                subjects=(node(gpu),),
                severity="error" if tp > 1 else "warning",
            )
        yield from _mode(gpu)


def _mode(gpu: Gpu) -> Iterator[Finding]:
    mode = gpu.compute_mode.value if isinstance(gpu.compute_mode, Ok) else 0
    if mode != _PROHIBITED and mode not in _EXCLUSIVE:
        return
    what = "lets no process in" if mode == _PROHIBITED else "lets one process in; engines use several for one GPU"
    yield CHECK.finding(
        f"The compute mode of {label(gpu)} {what}",
        [seen("nvml", f"nvmlDeviceGetComputeMode is {mode}")],
        (f"an administrator: nvidia-smi -i {gpu.index} -c DEFAULT",),
        subjects=(node(gpu),),
        severity="error" if mode == _PROHIBITED else "warning",
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD130",
        name="mig-or-compute-mode-in-the-way",
        severity="error",
        category="gpu",
        asks="are the GPUs whole, and open to several processes?",
    ),
    evaluate=evaluate,
)
