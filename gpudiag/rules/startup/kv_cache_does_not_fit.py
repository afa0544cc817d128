"""GPD222: after the weights there is too little memory for the KV cache."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised
from gpudiag.rules.log.words import said

CODE: Final = "GPD222"
NAME: Final = "kv-cache-does-not-fit"

_PATTERN: Final = re.compile(
    r"No available memory for the cache blocks|on kv cache allocation is less "
    r"than requested|KV cache is needed, which is larger than the available "
    r"KV cache memory|larger than the maximum number of tokens that can be stored in (?:the )?KV cache|"
    r"Not enough memory\. Please try to increase --mem-fraction-static|To serve at "
    r"least one request with the models's max seq len|max_total_num_tokens[^\n]*<= ?0|"
    r"Available KV cache memory[^\n]*(?:negative|-\d)|is (?:too small|not "
    r"enough)[^\n]*KV ?cache|KV cache[^\n]*(?:is too small|does not fit)"
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
        "{who}: the KV cache does not fit: " + said(hit.node.message, 200),
        [
            "lower --max-model-len (vLLM) or --context-length (SGLang)",
            "raise --gpu-memory-utilization or --mem-fraction-static if the GPU has room",
            "more GPUs: a larger --tensor-parallel-size",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
