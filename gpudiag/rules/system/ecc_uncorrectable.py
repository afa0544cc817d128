"""GPD502 before a start: memory of a GPU returned data that could not be corrected."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpus import gpu_set, label, node


def evaluate(facts: Facts) -> Answer:
    gpus = gpu_set(facts)
    if isinstance(gpus, Answer):
        return gpus
    counts = [(g, g.ecc_uncorrected.value) for g in gpus.gpus if isinstance(g.ecc_uncorrected, Ok)]
    made = (
        CHECK.finding(
            f"{label(gpu)} had {plural(count, 'uncorrectable memory error')} since the driver was loaded",
            [seen("nvml", f"nvmlDeviceGetTotalEccErrors(uncorrected, volatile) is {count}")],
            (
                "drain it and reset the GPU; a row is remapped then",
                "nvidia-smi -q -d ECC,ROW_REMAPPER shows whether rows are left",
            ),
            subjects=(node(gpu),),
        )
        for gpu, count in counts
        if count
    )
    if not counts:
        first = gpus.gpus[0].ecc_uncorrected
        return passed("") if isinstance(first, Ok) else unread(first)
    return found(made, passed(f"none on {plural(len(counts), 'GPU')}"))


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD502",
        name="ecc-uncorrectable",
        severity="warning",
        category="gpu",
        asks="is the memory of the GPUs free of uncorrectable errors?",
    ),
    evaluate=evaluate,
)
