"""GPD206: a library holds no machine code for this GPU."""

from __future__ import annotations

from typing import Final

from gpudiag.rules.log.case import LogRule
from gpudiag.rules.log.matching import matching

RULE: Final[LogRule] = matching(
    "GPD206",
    "no-kernel-image",
    specificity=80,
    pattern=(
        r"(?P<op>\b\w{1,60} failed[^\n]{0,40}: )?(?:CUDA error: )?no kernel image is available|"
        r"invalid device function|cudaErrorNoKernelImageForDevice|\bsm_\d+\w? is not compatible"
    ),
    title="{who} called a kernel for which its library has no image for this GPU",
    next_steps=(
        "gpudiag kernels list",
        "nvidia-smi --query-gpu=name,compute_cap --format=csv",
        "install a build of that library for this architecture (TORCH_CUDA_ARCH_LIST when you build it)",
    ),
)
