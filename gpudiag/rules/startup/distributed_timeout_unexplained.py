"""GPD228: a collective or a barrier timed out and nothing here says who was late."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import consequences, culprit, line_evidence, raised

CODE: Final = "GPD228"
NAME: Final = "distributed-timeout-unexplained"

_PATTERN: Final = re.compile(
    r"[Ww]atchdog caught collective operation timeout|monitored_?[Bb]arrier|"
    r"Timed out waiting (?:\d+ms )?for|ran for \d+ milliseconds before timing out|"
    r"Some (?:NCCL|ranks?)[^\n]*(?:timed out|did not)|finished loading but|wait(?:ing)? timed? ?out"
)


def _evaluate(case: LogCase) -> Iterable[Finding]:
    steps = [
        "collect the logs of all ranks and nodes of the same minutes",
        "start with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 and read the dumps with gpudiag explain",
        "gpudiag attach while it hangs",
        "slow and not dead: uneven loading may need a longer limit (SGLANG_MODEL_LOADING_TIMEOUT_S, --dist-timeout)",
    ]
    hit = case.match(_PATTERN)
    if hit is not None:
        yield raised(
            case,
            CODE,
            NAME,
            hit.node,
            "{who} waited for the others until the limit ran out: " + hit.node.message.partition("\n")[0][:140],
            steps,
        )
        return
    event = case.failure.event
    if case.failure.kind == "hang" and event is not None and event.kind == "collective-timeout":
        yield finding(
            CODE,
            NAME,
            "error",
            title="a collective timed out, and these logs do not say which rank was late",
            links=[[line_evidence(case.facts, event, "the watchdog")]],
            next_steps=steps,
            culprits=[culprit(case.facts, event.speaker)],
            consequences=consequences(case),
        )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=30, evaluate=_evaluate)
