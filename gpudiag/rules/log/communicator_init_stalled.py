"""GPD401: the log ends while NCCL communicators are being made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Evidence, Finding
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import culprit
from gpudiag.rules.log.progress import last_reached

CODE: Final = "GPD401"
NAME: Final = "communicator-init-stalled"


def _evaluate(case: LogCase) -> Iterable[Finding]:
    last = last_reached(case.facts)
    if case.failure.kind not in ("victim", "hang") or not last or case.facts.flight or case.facts.ras:
        return
    if any(m.order not in (32, 33) for m in last):
        return
    excerpt = "\n".join(m.text for m in last[:4])
    yield finding(
        CODE,
        NAME,
        "error",
        title="every rank's last word is the creation of its NCCL communicator, which did not end",
        links=[
            [Evidence(source="log-line", claim="the last step that each rank reports", excerpt=excerpt)],
            [Evidence(source="absence", claim="no rank reports the communicator as made")],
        ],
        next_steps=[
            "NCCL_DEBUG=INFO, start again: the last line of each rank names the step",
            (
                "look for a CUDA shim: tr '\\0' '\\n' < /proc/PID/environ | grep "
                "LD_PRELOAD (HAMi's libvgpu.so deadlocks here: CUDA_DISABLE_CONTROL=true)"
            ),
            "several network interfaces: set NCCL_SOCKET_IFNAME",
        ],
        culprits=[culprit(case.facts, m.speaker) for m in last[:16]],
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=40, evaluate=_evaluate)
