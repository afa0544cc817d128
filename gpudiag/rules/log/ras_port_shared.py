"""GPD406: NCCL's RAS could not take its port, usually because another job on the host has it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import from_line

CODE: Final = "GPD406"
NAME: Final = "ras-port-shared"

RAS_PORT: Final = re.compile(r"RAS\b.{0,120}(?:bind|listen|socket).{0,120}|(?:bind|listen).{0,80}\bRAS\b", re.IGNORECASE)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    event = case.failure.event
    if event is None or event.kind != "nccl-warn" or not RAS_PORT.search(event.text):
        return
    yield from_line(
        case,
        CODE,
        NAME,
        event,
        "NCCL's RAS has no port of its own: what ncclras prints on this host may be about another job",
        ["ss -ltnp 'sport = :28028'", "give each job its own: export NCCL_RAS_ADDR=localhost:28029"],
        claim="NCCL's warning",
        severity="warning",
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="warning", specificity=70, evaluate=_evaluate)
