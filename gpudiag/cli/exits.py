"""Exit codes of commands that print a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gpudiag.errors import ExitCode
from gpudiag.model.finding import SEVERITY_ORDER
from gpudiag.model.report import Report

FailOn = Literal["error", "warning", "info", "never"]


def exit_code(report: Report, fail_on: FailOn, partial: bool) -> ExitCode:
    """1 if something was found at or above `fail_on`, else 5 if a source that the verdict needs failed, else 0."""
    if fail_on != "never":
        severities = [f.severity for f in report.findings]
        if report.verdict.severity is not None:
            severities.append(report.verdict.severity)
        if any(SEVERITY_ORDER[s] >= SEVERITY_ORDER[fail_on] for s in severities):
            return ExitCode.FINDINGS
    return ExitCode.PARTIAL if partial else ExitCode.OK


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The code of a command that printed several reports: 1 beats 5, 5 beats 0."""
    found = set(codes)
    return next((c for c in (ExitCode.FINDINGS, ExitCode.PARTIAL) if c in found), ExitCode.OK)
