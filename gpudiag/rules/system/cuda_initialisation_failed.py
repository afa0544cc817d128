"""GPD218 by a real test: a small program compiled for this GPU does not run on it."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.reading import NOT_ASKED, Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown, unread
from gpudiag.rules.preflight.words import plural

_BAD: Final = {"wrong-data": "computes wrong data", "hung": "never ends", "failed": "fails"}


def evaluate(facts: Facts) -> Answer:
    reading = facts.active
    if not isinstance(reading, Ok):
        return skipped("a test that uses the GPUs: --active") if reading == NOT_ASKED else unread(reading)
    runs = [one for one in reading.value if one.test == "smoke"]
    made = (
        CHECK.finding(
            f"A small program on GPU {one.gpus[0]} {_BAD[one.outcome]}",
            [seen("gpu-test", f"smoke {one.outcome} after {one.took_s:.1f} s", one.detail)],
            ("nvidia-smi; dmesg | grep -i xid", "gpudiag doctor --only GPD101 --only GPD115 --only GPD501"),
        )
        for one in runs
        if one.outcome in _BAD
    )
    unbuilt = next((one for one in runs if one.outcome == "not-built"), None)
    if unbuilt is not None:
        return unknown(f"the test could not be compiled: {unbuilt.detail}", "put nvcc of the CUDA toolkit on PATH")
    return found(made, passed(f"a small program ran on {plural(len(runs), 'GPU')}"))


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
