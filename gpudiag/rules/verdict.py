"""The one sentence of a report."""

from __future__ import annotations

from typing import Literal

from gpudiag.model.finding import Finding
from gpudiag.model.report import Verdict


def verdict_of(finding: Finding) -> Verdict:
    """The verdict that a finding is."""
    return Verdict(
        status="finding",
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        title=finding.title,
        confidence=finding.confidence,
        next_step=finding.next_steps[0] if finding.next_steps else "",
        culprits=finding.culprits,
    )


def verdict_without_finding(status: Literal["healthy", "insufficient"], title: str, next_step: str = "") -> Verdict:
    """The verdict where no finding speaks."""
    return Verdict(status=status, code=None, name=None, severity=None, title=title, confidence=None, next_step=next_step)
