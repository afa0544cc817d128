"""A server's log beside the look at its processes: one report out of both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpudiag.model import node
from gpudiag.model.log import LogFacts, ServerLog
from gpudiag.model.node import Node
from gpudiag.model.report import NotRead, Report, ReportedFinding, Worker
from gpudiag.rules.log_verdict import explain_log

_GONE: Final = frozenset({"GPD304", "GPD309"})
"""A process is missing; why it died only its log can say."""
_DEATH: Final = "GPD2"
_ALIVE: Final = frozenset({"serving", "idle"})


def with_log(report: Report, log: ServerLog, *, at: float | None = None) -> Report:
    """The report of a look, with what the log adds. `at` is the Unix time of the look.

    The log leads if the processes say nothing, or only that one of them is gone. A server that serves or idles did not
    die of what its log tells, so that such findings are left out there.
    """
    if log.facts is None:
        missing = NotRead(source="log", reason=log.reason, help=log.help)
        return msgspec.structs.replace(report, not_read=(*report.not_read, missing))
    told = explain_log(log.facts, version=report.gpudiag, generated_at=report.generated_at)
    report = _silent(report, log, at)
    report = msgspec.structs.replace(report, not_read=(*report.not_read, *told.not_read))
    state = report.target.state if report.target is not None else "unknown"
    added = [f for f in told.findings if state not in _ALIVE or not f.code.startswith(_DEATH)]
    if not added:
        return report
    if told.verdict.code == added[0].code and _leads(report, told):
        target = report.target
        if target is not None and told.target is not None:
            target = msgspec.structs.replace(target, state=told.target.state)
        return msgspec.structs.replace(
            report, target=target, verdict=told.verdict, findings=_without_doubles(report, (*added, *report.findings))
        )
    return msgspec.structs.replace(report, findings=_without_doubles(report, (*report.findings, *added)))


def belong_together(report: Report, facts: LogFacts) -> bool:
    """Whether a log is that of the server in a report: no other engine, and a process of it wrote a line."""
    if report.target is None or (facts.engine != report.target.engine and "unknown" not in (facts.engine, report.target.engine)):
        return False
    pids = {report.target.root_pid, *(w.pid for w in report.target.workers)}
    wrote = {facts.root_pid, *(m.speaker.pid for m in facts.milestones), *(t.speaker.pid for t in facts.tracebacks)}
    return bool(pids & wrote)


def _leads(report: Report, told: Report) -> bool:
    if report.verdict.status == "insufficient":
        return True
    return report.verdict.code in _GONE and (told.verdict.code or "").startswith(_DEATH)


def _silent(report: Report, log: ServerLog, at: float | None) -> Report:
    if report.target is None or log.written_at is None or at is None:
        return report
    silent_s = round(max(0.0, at - log.written_at), 1)
    return msgspec.structs.replace(report, target=msgspec.structs.replace(report.target, log_silent_s=silent_s))


def _without_doubles(report: Report, findings: Iterable[ReportedFinding]) -> tuple[ReportedFinding, ...]:
    """What both sources found stands once, as the first one says it. A log knows a rank, the look its process."""
    ranks = {node.process(w.pid): node.rank("global", w.rank.global_) for w in _workers(report) if w.rank.global_ is not None}
    seen: set[tuple[str, tuple[Node, ...]]] = set()
    kept = []
    for finding in findings:
        key = finding.code, tuple(ranks.get(subject.partition("/tid:")[0], subject) for subject in finding.subjects)
        if key not in seen:
            kept.append(finding)
        seen.add(key)
    return tuple(kept)


def _workers(report: Report) -> tuple[Worker, ...]:
    return report.target.workers if report.target is not None else ()
