"""GPD223: a kernel could not be compiled at run time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD223"
NAME: Final = "kernel-build-failed"

_PATTERN: Final = re.compile(
    r"Error building extension '(?P<ext>[\w.-]+)'|Ninja build failed|ninja: build stopped|"
    r"PTXASError|PTX codegen error|ptxas fatal|nvcc (?:fatal|failed)|NVRTC_ERROR|CompilationError|"
    r"subprocess\.CalledProcessError: Command '\[?'?ninja|Could not find nvcc|NoSuchFileOrDirectory[^\n]*nvcc|"
    r"InductorError: (?:CppCompileError|CalledProcessError)|CppCompileError|Unsupported \.target sm_\w+|Unknown CUDA arch"
)


_FATAL: Final = re.compile(r"fatal error:|fatal\s*:|undefined reference")
_ERROR: Final = re.compile(r"error[: ]|^\w+Error\(")
_OF_COMPILERS: Final = (
    "nvcc --version",
    "ls -l ~/.cache/flashinfer ~/.cache/torch_extensions ~/.triton/cache, and delete the entry that failed",
)
_OF_TRITON: Final = (
    "leave out the option that chose this kernel, or name another --attention-backend",
    "pip list | grep -iE '^(triton|torch|sglang|vllm) '",
)
"""Where Triton refused the kernel's own source or its arguments: no compiler and no cache is at fault then."""


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    text = hit.node.message
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if _FATAL.search(line)] or [line for line in lines if _ERROR.search(line)] or lines[:1]
    first = told[0] if told else ""
    old = re.search(
        r"sm_\d+\w?'? is not (?:defined|a recognized)|Value 'sm_(\w+)' is not defined|Unsupported \.target sm_(\w+)", text
    )
    steps = list(_OF_TRITON if hit.node.exception.startswith("triton.") else _OF_COMPILERS)
    if old:
        steps.insert(0, "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas (a ptxas that knows this GPU)")
    yield raised(case, CODE, NAME, hit.node, f"{{who}} could not compile a kernel: {first[:160]}", steps)


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=75, evaluate=_evaluate)
