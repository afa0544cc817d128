"""GPD207: the GPU has no memory left."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD207"
NAME: Final = "gpu-out-of-memory"

_PATTERN: Final = re.compile(
    r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation|HIP out of memory|"
    r"Failed to (?:CUDA|cuda) (?:calloc|malloc)[^\n]*|Free memory on device[^\n]*is less than desired"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    asked = re.search(r"Tried to allocate ([\d.]+ \w+)", hit.node.message)
    gpu = re.search(r"GPU (\d+) has a total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free", hit.node.message)
    size = f" for {asked.group(1)}" if asked else ""
    room = f" (GPU {gpu.group(1)}: {gpu.group(3)} free of {gpu.group(2)})" if gpu else ""
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        f"{{who}} ran out of GPU memory{size}{room}",
        [
            "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
            "lower --mem-fraction-static (SGLang) or --gpu-memory-utilization (vLLM)",
            "fewer or shorter requests at once: --max-running-requests, --max-num-seqs, --max-model-len",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
