"""GPD218 by a real test: a small program compiled for this GPU does not run on it."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, GpuTest
from gpudiag.rules.preflight.base import Answer, Check
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpu_tests import judged

_HOW: Final = {"wrong-data": "computes wrong data", "hung": "never ends", "failed": "fails"}


def evaluate(facts: Facts) -> Answer:
    return judged(CHECK, facts, ("smoke",), otherwise="no GPU", title=_title, steps=_steps, sound=_sound)


def _title(one: GpuTest) -> str:
    return f"A small program on GPU {one.gpus[0]} {_HOW[one.outcome]}"


def _steps(_: GpuTest) -> tuple[str, ...]:
    return "nvidia-smi; dmesg | grep -i xid", "gpudiag doctor --only GPD101 --only GPD115 --only GPD501"


def _sound(made: tuple[GpuTest, ...]) -> str:
    return f"a small program ran on {plural(len(made), 'GPU')}"


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD218",
        name="cuda-initialisation-failed",
        severity="error",
        category="gpu",
        asks="does a program compiled for each GPU run on it (only with --active)?",
    ),
    evaluate=evaluate,
)
