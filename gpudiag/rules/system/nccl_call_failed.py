"""GPD219 by a real test: a short all-reduce over all GPUs fails, never ends or adds up wrong."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, GpuTest
from gpudiag.rules.preflight.base import Answer, Check
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpu_tests import WEDGED, judged

_HOW: Final = {"wrong-data": "adds up wrong", "hung": "never ends", "failed": "fails"}


def evaluate(facts: Facts) -> Answer:
    return judged(CHECK, facts, ("all_reduce",), otherwise="one GPU", title=_title, steps=_steps, sound=_sound)


def _title(one: GpuTest) -> str:
    return f"An all-reduce over {plural(len(one.gpus), 'GPU')} {_HOW[one.outcome]}"


def _sound(made: tuple[GpuTest, ...]) -> str:
    return f"an all-reduce over {plural(len(made[0].gpus), 'GPU')} added up in {made[0].took_s:.1f} s"


def _steps(one: GpuTest) -> tuple[str, ...]:
    steps = (
        "NCCL_P2P_DISABLE=1 gpudiag doctor --active --only GPD219, then NCCL_SHM_DISABLE=1: what helps names the transport",
        "gpudiag doctor --only GPD112 --only GPD108 (NCCL's settings, shared memory)",
    )
    return (WEDGED, *steps) if one.outcome == "hung" else steps


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD219",
        name="nccl-call-failed",
        severity="error",
        category="link",
        asks="does a short all-reduce over all GPUs add up (only with --active)?",
    ),
    evaluate=evaluate,
)
