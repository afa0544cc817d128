"""Which libnccl a server of this environment loads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from gpudiag.model.install import Environment

_NAME: Final = "libnccl.so.2"


def path(environment: Environment | None, variables: Mapping[str, str]) -> str:
    """The file, or the bare name where only the system's loader knows one.

    vLLM opens VLLM_NCCL_SO_PATH if it is set (vllm/utils/nccl.py), SGLang SGLANG_NCCL_SO_PATH (sglang/srt/distributed/
    device_communicators/pynccl_wrapper.py); torch carries the path of the package nvidia-nccl in its own libraries.
    """
    for variable in ("VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH"):
        if variables.get(variable):
            return variables[variable]
    package = environment.package("nvidia") if environment is not None else None
    files = [os.path.join(place, "nccl", "lib", _NAME) for place in (package.locations if package else ())]
    return next((file for file in files if os.path.isfile(file)), _NAME)
