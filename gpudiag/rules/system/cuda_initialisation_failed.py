"""GPD218 by a real test: a small program compiled for this GPU does not run on it."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.rules.preflight.base import Answer, Check, found, passed
from gpudiag.rules.preflight.words import plural
from gpudiag.rules.system.gpu_tests import proof, runs

_HOW: Final = {"wrong-data": "computes wrong data", "hung": "never ends", "failed": "fails"}


def evaluate(facts: Facts) -> Answer:
    made = runs(facts, ("smoke",), "no GPU")
    if isinstance(made, Answer):
        return made
    findings = (
        CHECK.finding(
            f"A small program on GPU {one.gpus[0]} {_HOW[one.outcome]}",
            [proof(one)],
            ("nvidia-smi; dmesg | grep -i xid", "gpudiag doctor --only GPD101 --only GPD115 --only GPD501"),
        )
        for one in made
        if one.outcome in _HOW
    )
    return found(findings, passed(f"a small program ran on {plural(len(made), 'GPU')}"))


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
