"""GPD225: the machine's NUMA nodes, cores or GPUs do not allow this layout."""

from __future__ import annotations

from typing import Final

from gpudiag.rules.log.case import LogRule
from gpudiag.rules.log.matching import matching

RULE: Final[LogRule] = matching(
    "GPD225",
    "host-topology-unsupported",
    specificity=75,
    pattern=(
        r"Not enough allowed NUMA nodes[^\n]*|(?:SGLANG|VLLM)_CPU_OMP_THREADS_BIND[^\n]*|"
        r"(?:NUMA nodes?|numa node)[^\n]{0,200}(?:larger than|less than|not enough|must)[^\n]*|"
        r"(?:tp_size|world size|tensor parallel)[^\n]{0,200}(?:NUMA|numa|number of (?:available )?(?:cores|sockets))[^\n]*"
    ),
    title="{who}: this host's NUMA layout does not allow the ranks asked for: {found}",
    next_steps=(
        "lscpu | grep -i numa",
        "bind by hand: VLLM_CPU_OMP_THREADS_BIND='0-7|8-15' (vLLM), SGLANG_CPU_OMP_THREADS_BIND='0-7|8-15' (SGLang)",
        "or fewer ranks",
    ),
)
