"""GPD225: the machine's NUMA nodes, cores or GPUs do not allow this layout."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised
from gpudiag.rules.log.words import said

CODE: Final = "GPD225"
NAME: Final = "host-topology-unsupported"

_PATTERN: Final = re.compile(
    r"Not enough allowed NUMA nodes[^\n]*|(?:SGLANG|VLLM)_CPU_OMP_THREADS_BIND[^\n]*|"
    r"(?:NUMA nodes?|numa node)[^\n]{0,200}(?:larger than|less than|not enough|must)[^\n]*|"
    r"(?:tp_size|world size|tensor parallel)[^\n]{0,200}(?:NUMA|numa|number of (?:available )?(?:cores|sockets))[^\n]*"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    yield raised(
        case,
        CODE,
        NAME,
        hit.node,
        "{who}: this host's NUMA layout does not allow the ranks asked for: " + said(hit.found.group(0), 200),
        [
            "lscpu | grep -i numa",
            "bind by hand: VLLM_CPU_OMP_THREADS_BIND='0-7|8-15' (vLLM), SGLANG_CPU_OMP_THREADS_BIND='0-7|8-15' (SGLang)",
            "or fewer ranks",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=75, evaluate=_evaluate)
