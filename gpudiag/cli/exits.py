"""Exit codes of commands that print a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from gpudiag.errors import ExitCode
from gpudiag.model.finding import SEVERITY_ORDER
from gpudiag.model.report import Report

FailOn = Literal["error", "warning", "info", "never"]


def exit_code(report: Report, fail_on: FailOn, partial: bool, blind: bool = False) -> ExitCode:
    """1 if something was found at or above `fail_on`, else 4 if nothing could be read (`blind`), 5 if a needed source failed."""
    if fail_on != "never":
        severities = [f.severity for f in report.findings]
        if report.verdict.severity is not None:
            severities.append(report.verdict.severity)
        if any(SEVERITY_ORDER[s] >= SEVERITY_ORDER[fail_on] for s in severities):
            return ExitCode.FINDINGS
    if blind:
        return ExitCode.NOT_INSPECTABLE
    return ExitCode.PARTIAL if partial else ExitCode.OK


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The code of a command that printed several reports: 1 beats 4, 4 beats 5, 5 beats 0."""
    found = set(codes)
    return next((c for c in (ExitCode.FINDINGS, ExitCode.NOT_INSPECTABLE, ExitCode.PARTIAL) if c in found), ExitCode.OK)


def exit_code_of(reports: Sequence[Report], fail_on: FailOn) -> ExitCode:
    """The code of a command that judged these reports, each on its own."""
    from gpudiag.rules.diagnose import is_blind, is_partial

    return worst(exit_code(report, fail_on, is_partial(report), is_blind(report)) for report in reports)
