"""GPD125: a library that virtualises the GPU is preloaded into every process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Finding
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen

_SHIMS: Final = {
    "libvgpu.so": "HAMi's memory limiter; it has hung pynccl's ncclCommInitRank on Blackwell (HAMi issue 2641)",
    "libcuda-control.so": "a GPU sharing limiter that stands between CUDA and the driver",
}


def evaluate(facts: Facts) -> Answer:
    text = facts.system.environment.get("LD_PRELOAD", "")
    entries = [e for e in re.split(r"[\s:]+", text) if e]
    return found(_shims(entries, text), passed(f"LD_PRELOAD: {', '.join(entries)}" if entries else "LD_PRELOAD is not set"))


def _shims(entries: list[str], text: str) -> Iterator[Finding]:
    for entry in entries:
        why = _SHIMS.get(entry.rpartition("/")[2])
        if why:
            yield CHECK.finding(
                f"{entry} is preloaded: {why}",
                [seen("environment", "LD_PRELOAD", text)],
                ("export CUDA_DISABLE_CONTROL=true (HAMi), or start the server without LD_PRELOAD",),
                subjects=(f"file:{entry}",),
            )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD125",
        name="preload-shim-present",
        severity="warning",
        category="environment",
        asks="does a preloaded library stand between the server and the driver?",
    ),
    evaluate=evaluate,
)
