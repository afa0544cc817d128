"""GPD305: a process was stopped (SIGSTOP, a debugger) when its stack was to be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpudiag.model.finding import Finding
from gpudiag.rules.base import finding
from gpudiag.rules.log.case import LogCase, LogRule
from gpudiag.rules.log.findings import consequences, culprit, dump_evidence, who

CODE: Final = "GPD305"
NAME: Final = "process-stopped"


def _evaluate(case: LogCase) -> Iterable[Finding]:
    if case.failure.kind != "hang":
        return
    facts = case.facts
    stopped = list({d.pid: d for d in facts.dumps if d.stopped}.values())
    if not stopped:
        return
    # Dumps of an earlier run may lie beside the log: processes of a server are younger than its root.
    root = facts.root_pid or 0
    stopped.sort(key=lambda d: ((d.pid or 0) < root, d.pid or 0))
    ours = [d for d in stopped if (d.pid or 0) >= root] or stopped
    named = ", ".join(f"{who(facts, d.speaker)} (pid {d.pid})" for d in ours[:4])
    yield finding(
        CODE,
        NAME,
        "error",
        title=f"{named} {'is' if len(ours) == 1 else 'are'} stopped: SIGSTOP or a debugger",
        links=[[dump_evidence(facts, d, f"py-spy found pid {d.pid} stopped already") for d in ours[:8]]],
        next_steps=[
            f"kill -CONT {' '.join(str(d.pid) for d in ours[:8])}",
            f"grep -E 'State|TracerPid' /proc/{ours[0].pid}/status",
            "find who sent it: a debugger, a job scheduler that suspends, a terminal's Ctrl-Z",
        ],
        culprits=[culprit(facts, d.speaker) for d in ours[:16]],
        consequences=consequences(case),
    )


RULE: Final[LogRule] = LogRule(code=CODE, name=NAME, severity="error", specificity=80, evaluate=_evaluate)
