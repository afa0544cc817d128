"""Environment variables and configuration files that engines, NCCL, CUDA and the loader read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpudiag.doctor.reads import Root, bounded

_READ: Final = re.compile(
    r"(?:NCCL|CUDA|TORCH|PYTORCH|VLLM|SGLANG|SGL|TRITON|TORCHINDUCTOR|FLASHINFER|NVSHMEM|UCX|GLOO|OMP)_\w+"
    r"|LD_PRELOAD|LD_LIBRARY_PATH|PYTHONPATH|HF_HOME|HF_HUB_CACHE|TMPDIR|XDG_CACHE_HOME|MAX_JOBS|CMAKE_ARGS|VIRTUAL_ENV|CONDA_PREFIX"
)
_SECRET: Final = re.compile(r"TOKEN|SECRET|PASSWORD|API_?KEY|CREDENTIAL", re.IGNORECASE)
_MAX_VALUE: Final = 4096


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that change how a server runs. Anything named like a secret is left out."""
    return {
        name: value[:_MAX_VALUE]
        for name, value in sorted(variables.items())
        if _READ.fullmatch(name) and not _SECRET.search(name)
    }


def nccl_files(root: Root, variables: Mapping[str, str]) -> dict[str, str]:
    """Text of NCCL's configuration files that exist: NCCL_CONF_FILE or ~/.nccl.conf, and /etc/nccl.conf."""
    own = variables.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf")
    found = {}
    for path in (Path(own), root.at("etc/nccl.conf")):
        try:
            found[str(path)] = bounded(path, 1 << 16).decode("utf-8", "replace")
        except OSError:
            continue
    return found
