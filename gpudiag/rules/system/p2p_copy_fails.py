"""GPD403 by a real test: data does not get from one GPU to another."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, GpuTest
from gpudiag.rules.preflight.base import Answer, Check
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpu_tests import WEDGED, judged

_TESTS: Final = {"peer_copy": "copying", "peer_ipc": "sharing memory between two processes"}
_HOW: Final = {"wrong-data": "delivers wrong data", "hung": "never ends", "failed": "fails"}


def evaluate(facts: Facts) -> Answer:
    return judged(CHECK, facts, _TESTS, otherwise="one GPU", title=_title, steps=_steps, sound=_sound)


def _title(one: GpuTest) -> str:
    return f"{_TESTS[one.test].capitalize()} from GPU {one.gpus[0]} to GPU {one.gpus[1]} {_HOW[one.outcome]}"


def _sound(made: tuple[GpuTest, ...]) -> str:
    return f"{plural(len(made), 'test')} between GPUs moved the right data"


def _steps(one: GpuTest) -> tuple[str, ...]:
    steps = (
        "gpudiag doctor --only GPD110 --only GPD111 (IOMMU and PCIe bridges are the usual reason)",
        "until then: NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce, both",
    )
    return (WEDGED, *steps) if one.outcome == "hung" else steps


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD403",
        name="p2p-copy-fails",
        severity="error",
        category="link",
        asks="does data really get from each GPU to each other (only with --active)?",
    ),
    evaluate=evaluate,
)
