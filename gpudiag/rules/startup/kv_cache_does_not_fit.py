"""GPD222: after the weights there is too little memory for the KV cache."""

from __future__ import annotations

from typing import Final

from gpudiag.rules.log.case import LogRule
from gpudiag.rules.log.matching import matching

RULE: Final[LogRule] = matching(
    "GPD222",
    "kv-cache-does-not-fit",
    specificity=80,
    pattern=(
        r"No available memory for the cache blocks|on kv cache allocation is less "
        r"than requested|KV cache is needed, which is larger than the available "
        r"KV cache memory|larger than the maximum number of tokens that can be stored in (?:the )?KV cache|"
        r"Not enough memory\. Please try to increase --mem-fraction-static|To serve at "
        r"least one request with the models's max seq len|max_total_num_tokens[^\n]*<= ?0|"
        r"Available KV cache memory[^\n]*(?:negative|-\d)|is (?:too small|not "
        r"enough)[^\n]*KV ?cache|KV cache[^\n]*(?:is too small|does not fit)"
    ),
    title="{who}: the KV cache does not fit: {message}",
    next_steps=(
        "lower --max-model-len (vLLM) or --context-length (SGLang)",
        "raise --gpu-memory-utilization or --mem-fraction-static if the GPU has room",
        "more GPUs: a larger --tensor-parallel-size",
    ),
)
