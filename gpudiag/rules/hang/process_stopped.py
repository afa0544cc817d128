"""GPD305: a process of the server is stopped (SIGSTOP, terminal, debugger)."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.engines.roles import BYSTANDERS
from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.model.process import STOPPED, Process
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.hang.standing import consequences, culprit, label, waiting
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for process in picture.observation.last.processes:
        member = picture.server.member(process.pid)
        target = node.process(process.pid)
        cause = picture.cause_of(target)
        if process.state not in STOPPED or not _all_along(picture, process):
            continue
        if cause is None and (member is None or member.role in BYSTANDERS):
            continue
        traced = process.state == "t" or process.tracer_pid > 0
        how = f"held by the debugger pid {process.tracer_pid}" if traced else "stopped by a signal (state T)"
        # A profiler stops a process for milliseconds: one look alone may have met just that.
        when = "in every look" if picture.observation.has_change else "in the one look that was taken"
        state = Evidence(
            source="process-state" if picture.observation.has_change else "one-look",
            claim=f"pid {process.pid} is {how} {when}",
            excerpt=f"State: {process.state}, TracerPid: {process.tracer_pid}",
            at=picture.at,
        )
        waiters = f"; {waiting(picture, cause)}" if cause is not None else ""
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{label(picture, target)} is stopped{waiters}",
            links=((state,),),
            culprits=(culprit(picture, target),),
            consequences=consequences(picture, cause),
            next_steps=(
                f"detach the debugger: pid {process.tracer_pid}"
                if traced
                else f"let it run again: `kill -CONT {process.pid}`"
                " (after finding out who stopped it: a debugger, a job shell, a freezer)",
            ),
        )


def _all_along(picture: Picture, process: Process) -> bool:
    """A profiler stops a process for milliseconds; only a stop that every look saw counts."""
    looks = [s.process(process.pid) for s in picture.observation.snapshots]
    return all(p is not None and p.state in STOPPED for p in looks)


RULE = Rule(code="GPD305", name="process-stopped", severity="error", evaluate=evaluate, specificity=85)
