"""Which libnccl a server of this environment loads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from gpudiag.doctor.loader import Loader, dynamic
from gpudiag.doctor.reads import Root
from gpudiag.model.install import Environment, NcclLibrary, canonical

_NAME: Final = "libnccl.so.2"
_VARIABLES: Final = {"vllm": "VLLM_NCCL_SO_PATH", "sglang": "SGLANG_NCCL_SO_PATH"}
"""vllm/utils/nccl.py; sglang/srt/distributed/device_communicators/pynccl_wrapper.py. Without it both ask for libnccl.so.2 by its
name alone, and get the one that torch has loaded."""
_VERSIONED: Final = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)$")


def path(environment: Environment | None, variables: Mapping[str, str]) -> str:
    """The file that the engine's own collectives use, or the bare name where only the system's loader may know one."""
    found = list(libraries(environment, variables)) if environment is not None else []
    return found[-1].path if found else _NAME


def libraries(environment: Environment, variables: Mapping[str, str]) -> Iterator[NcclLibrary]:
    """The one of torch, then that of each engine to which a variable gives another one."""
    torch = environment.package("torch")
    for place in torch.locations if torch is not None else ():
        library = os.path.join(place, "lib", "libtorch_cuda.so")
        found = _asked_by(library, variables)
        if found is not None:
            yield NcclLibrary(user="torch", path=os.path.normpath(found[0]), by=found[1], version=_version(found[0], environment))
            break
    for engine, variable in _VARIABLES.items():
        named = variables.get(variable)
        about = environment.package(engine)
        if named and about is not None and about.origin:
            yield NcclLibrary(user=engine, path=named, by=variable, version=_version(named, environment))


def _asked_by(library: str, variables: Mapping[str, str]) -> tuple[str, str] | None:
    """The file, and by what the loader finds it; None if the library asks for none, or is not there."""
    try:
        asks = dynamic(library)
    except (OSError, ValueError):
        return None
    return Loader(Root(), variables).find(_NAME, asks) if asks is not None and _NAME in asks.needed else None


def _version(file: str, environment: Environment) -> str | None:
    """From the wheel that the file belongs to, or from the name that a distribution's package gives the real file."""
    real = os.path.realpath(file)
    named = _VERSIONED.search(real)
    if named is not None:
        return named[1]
    for distribution in environment.distributions:
        site = os.path.realpath(os.path.dirname(distribution.where))
        if canonical(distribution.name).startswith("nvidia-nccl-cu") and Path(real).is_relative_to(site):
            return distribution.version
    return None
