"""GPD218: the CUDA driver or runtime cannot start."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import raised

CODE: Final = "GPD218"
NAME: Final = "cuda-initialisation-failed"

_PATTERN: Final = re.compile(
    r"Error (?P<number>80[0-9]): (?P<text>[^\n]{1,80})|CUDA driver initialization failed|Found "
    r"no NVIDIA driver|no CUDA-capable device is detected|CUDA driver version is insufficient|"
    r"No CUDA GPUs are available|cudaErrorSystemNotReady|system not yet initialized|cudaErrorInsufficientDriver|"
    r"CUDA unknown error|Failed to initialize NVML|Torch not compiled with CUDA enabled"
)

_KNOWN: Final[dict[str, tuple[str, list[str]]]] = {
    "801": (
        "the operation is not supported on this system",
        ["nvidia-smi -q | grep -i virtual", "check the driver's release notes for this GPU"],
    ),
    "802": (
        "the fabric manager of this NVSwitch machine does not run or has another version than the driver",
        [
            "systemctl status nvidia-fabricmanager",
            "nvidia-smi -q | grep -A3 Fabric",
            "install the nvidia-fabricmanager of exactly the driver's version and start it",
        ],
    ),
    "803": (
        "the user-space driver libraries have another version than the kernel module",
        ["nvidia-smi", "cat /proc/driver/nvidia/version", "reboot, or reload the nvidia modules"],
    ),
    "804": (
        "the forward-compatibility libraries are not allowed on this GPU",
        ["ldconfig -p | grep libcuda.so", "take /usr/local/cuda/compat off LD_LIBRARY_PATH"],
    ),
}
"""CUDA's own numbers (cudaError_t, CUDA 13 headers) and what is behind them."""


def _evaluate(case: LogCase) -> Iterable[Finding]:
    hit = case.match(_PATTERN)
    if hit is None:
        return
    number = hit.get("number") or ("802" if "system not yet" in hit.found.group(0) or "NotReady" in hit.found.group(0) else "")
    why, steps = _KNOWN.get(
        number,
        (
            "the driver and the runtime do not come up together",
            ["nvidia-smi", "python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'"],
        ),
    )
    yield raised(case, CODE, NAME, hit.node, f"{{who}} cannot start CUDA{f' (error {number})' if number else ''}: {why}", steps)


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=75, evaluate=_evaluate)
