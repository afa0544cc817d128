"""GPD117: the engine compiles kernels while it serves, and a compiler for that is not there."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.install import Environment
from gpudiag.rules.install.build_tools import tool_version
from gpudiag.rules.install.reading import environment
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import listing

_COMPILING: Final = ("flashinfer-python", "sglang-kernel", "deep-gemm", "sgl-deep-gemm")
_PREBUILT: Final = {"flashinfer-python": ("flashinfer-jit-cache",)}
"""Wheels that bring what a package would compile."""
_WHEELS: Final = {"ninja": ("ninja",), "nvcc": ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu13"), "g++": ()}


def evaluate(facts: Facts) -> Answer:
    about = environment(facts)
    if isinstance(about, Answer):
        return about
    if about.torch_cuda is None:
        return skipped("torch here is not built for CUDA")
    who = [name for name in _COMPILING if about.distribution(name) is not None and not _prebuilt(about, name)]
    if not who:
        return skipped("nothing that compiles kernels while serving")
    lacking = [tool for tool in _WHEELS if not tool_version(facts.system, tool) and not _in_wheels(about, tool)]
    made = (
        CHECK.finding(
            f"{listing(who)} compiles kernels at run time and there is no {tool}",
            [
                seen("interpreter", f"no {tool} on PATH, and no wheel of it in the environment"),
                seen("package-metadata", f"installed: {listing(who)}"),
            ],
            (_fix(tool, about.torch_cuda or ""),),
        )
        for tool in lacking
    )
    return found(made, passed("nvcc, ninja and a C++ compiler are there"))


def _prebuilt(about: Environment, name: str) -> bool:
    """Only of the very same version: another one is ignored with a warning."""
    own = about.distribution(name)
    wheels = [about.distribution(w) for w in _PREBUILT.get(name, ())]
    return any(w is not None and own is not None and w.version.partition("+")[0] == own.version for w in wheels)


def _in_wheels(about: Environment, tool: str) -> bool:
    return any(about.distribution(name) is not None for name in _WHEELS[tool])


def _fix(tool: str, cuda: str) -> str:
    match tool:
        case "nvcc":
            return f"install the CUDA {cuda} toolkit and set CUDA_HOME, or flashinfer-jit-cache of FlashInfer's version"
        case "ninja":
            return "pip install ninja"
        case _:
            return "apt install g++, or dnf install gcc-c++"


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD117",
        name="jit-toolchain-missing",
        severity="warning",
        category="build",
        asks="are the compilers there that the engine uses while it serves?",
    ),
    evaluate=evaluate,
)
