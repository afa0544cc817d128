"""GPD223 by a real test: the server's Triton does not compile a kernel for this GPU, or the kernel is wrong."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, GpuTest
from gpudiag.rules.preflight.base import Answer, Check
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpu_tests import judged

_HOW: Final = {"wrong-data": "computes wrong products", "hung": "never ends", "failed": "does not compile or does not run"}
_NO_TRITON: Final = "no Triton to try in that interpreter (--python)"
_COMPILER: Final = ("C compiler", "Python.h", "gcc", "-lcuda", "No such file or directory")
"""Words of the last lines where Triton finds no compiler, cannot run the one in CC, or lacks what it includes and links."""


def evaluate(facts: Facts) -> Answer:
    return judged(CHECK, facts, ("triton",), otherwise=_NO_TRITON, title=_title, steps=_steps, sound=_sound)


def _title(one: GpuTest) -> str:
    return f"A small Triton kernel on GPU {one.gpus[0]} {_HOW[one.outcome]}"


def _sound(made: tuple[GpuTest, ...]) -> str:
    return f"Triton compiled a kernel that runs on {plural(len(made), 'GPU')}"


def _steps(one: GpuTest) -> tuple[str, ...]:
    if "ptxas" not in one.detail and any(word in one.detail for word in _COMPILER):
        return (
            "apt-get install gcc python3-dev (Triton compiles its launcher with them at run time)",
            "echo $CC (it must be a compiler)",
        )
    return (
        "pip show torch triton: torch names the version of Triton that it was released with",
        "export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas, if Triton's own does not know this GPU",
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD223",
        name="kernel-build-failed",
        severity="error",
        category="gpu",
        asks="does the server's Triton compile a kernel that each GPU runs (only with --active)?",
    ),
    evaluate=evaluate,
)
