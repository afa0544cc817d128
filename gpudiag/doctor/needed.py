"""Shared libraries that the engines' extensions need and nobody has, without loading them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpudiag.doctor import libraries
from gpudiag.doctor.loader import Loader, dynamic
from gpudiag.model.install import Environment, Needed, Unresolved

_PACKAGES: Final = ("sglang", "vllm", "sgl_kernel", "flashinfer", "flash_attn", "deep_gemm", "deep_ep")
_OF_THE_DRIVER: Final = ("libcuda.so", "libnvidia-ml.so", "libnvcuvid.so", "libnvidia-")
"""They come with the driver, into a container as well: whether it is there is another question."""
_LOADED_BEFORE: Final = ("torch/lib/*.so*", "nvidia/*/lib/*.so*", "nvidia/*/lib64/*.so*", "*.libs/*.so*", "tvm_ffi/lib/*.so*")
"""Libraries of wheels that others link with though no path leads there: their package is imported first and loads them."""


def needed(about: Environment, loader: Loader) -> Needed:
    """Every library that an extension of an engine or its kernels names in its header and that leads nowhere."""
    beside = frozenset(os.path.basename(p) for place in _sites(about) for g in _LOADED_BEFORE for p in glob.iglob(f"{place}/{g}"))
    missing: list[Unresolved] = []
    looked = 0
    for path in _extensions(about):
        try:
            asks = dynamic(path)
        except (OSError, ValueError):
            continue
        if asks is None:
            continue
        looked += 1
        own = os.path.dirname(path)
        for name in asks.needed:
            known = name in beside or name.startswith(_OF_THE_DRIVER) or os.path.exists(os.path.join(own, name))
            if not known and loader.find(name, asks) is None:
                missing.append(Unresolved(path=path, name=name, instead=_other_versions(name, beside)))
    return Needed(extensions=looked, missing=tuple(missing))


def _other_versions(name: str, beside: frozenset[str]) -> tuple[str, ...]:
    stem = name.partition(".so")[0] + ".so"
    return tuple(sorted(one for one in beside if one.startswith(stem) and one != name))


def _sites(about: Environment) -> list[str]:
    return [p for p in about.path if os.path.basename(p) in ("site-packages", "dist-packages")]


def _extensions(about: Environment) -> Iterator[str]:
    packages = [about.package(name) for name in _PACKAGES]
    places = dict.fromkeys(os.path.realpath(place) for one in packages if one is not None for place in one.locations)
    for place in places:
        for file in libraries.files(Path(place)):
            if ".so" in file.name:
                yield str(file)
