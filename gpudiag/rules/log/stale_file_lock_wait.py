"""GPD307: processes wait for a lock file of a compiler cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import consequences, culprit, line_evidence, who

CODE: Final = "GPD307"
NAME: Final = "stale-file-lock-wait"


def _evaluate(case: LogCase) -> Iterable[Finding]:
    waits = case.facts.of("baton")
    if case.failure.kind != "hang" or not waits:
        return
    path = waits[-1].fields.get("path", "").rstrip(".,;'\")")
    ranks = ", ".join(dict.fromkeys(who(case.facts, e.speaker) for e in waits[:16]))
    yield finding(
        CODE,
        NAME,
        "error",
        title=f"{ranks} waits for the lock file {path}, and the log never says that it was released",
        links=[[line_evidence(case.facts, e, "waiting for the lock") for e in waits[:4]]],
        next_steps=[f"fuser -v {path} (nobody: the lock is stale)", f"rm {path}, once no process has it open, and start again"],
        culprits=[culprit(case.facts, waits[-1].speaker, path=path)],
        consequences=consequences(case),
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=75, evaluate=_evaluate)
