"""GPD206: a library holds no machine code for this GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD206"
NAME: Final = "no-kernel-image"

_PATTERN: Final = re.compile(
    r"(?P<op>\b\w{1,60} failed[^\n]{0,40}: )?(?:CUDA error: )?no kernel image is available|"
    r"invalid device function|cudaErrorNoKernelImageForDevice|\bsm_\d+\w? is not compatible"
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
        "{who} called a kernel for which its library has no image for this GPU",
        [
            "gpudiag kernels list",
            "nvidia-smi --query-gpu=name,compute_cap --format=csv",
            "install a build of that library for this architecture (TORCH_CUDA_ARCH_LIST when you build it)",
        ],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
