"""GPD403 by a real test: data does not get from one GPU to another."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, PeerCopy
from gpudiag.model.reading import NOT_ASKED, Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown, unread
from gpudiag.rules.preflight.words import plural

_TESTS: Final = {"peer_copy": "copying", "peer_ipc": "sharing memory between two processes"}
_HOW: Final = {"wrong-data": "delivers wrong data", "hung": "never ends", "failed": "fails"}


def evaluate(facts: Facts) -> Answer:
    reading = facts.active
    if not isinstance(reading, Ok):
        return skipped("a test that uses the GPUs: --active") if reading == NOT_ASKED else unread(reading)
    runs = [one for one in reading.value if one.test in _TESTS]
    bad = [one for one in runs if one.outcome in _HOW]
    made = (
        CHECK.finding(
            f"{_TESTS[one.test].capitalize()} from GPU {one.gpus[0]} to GPU {one.gpus[1]} {_HOW[one.outcome]}",
            [seen("gpu-test", f"{one.test} {one.outcome} after {one.took_s:.1f} s", one.detail)],
            _steps(one),
        )
        for one in bad
    )
    unbuilt = next((one for one in reading.value if one.outcome == "not-built"), None)
    if unbuilt is not None and not bad:
        return unknown(f"the test could not be compiled: {unbuilt.detail}", "put nvcc of the CUDA toolkit on PATH")
    if not runs:
        return skipped("one GPU")
    return found(made, passed(f"{plural(len(runs), 'test')} between GPUs moved the right data"))


def _steps(one: PeerCopy) -> tuple[str, ...]:
    steps = [
        "gpudiag doctor --only GPD110 --only GPD111 (IOMMU and PCIe bridges are the usual reason)",
        "until then: NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce, both",
    ]
    if one.outcome == "hung":
        steps.insert(0, "the GPUs may be busy for ever now: nvidia-smi, and reset them or reboot before you go on")
    return tuple(steps)


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
