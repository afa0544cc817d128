"""From facts to a report."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from gpudiag.model.doctor import CheckResult, DoctorReport, ReportedCheck
from gpudiag.model.facts import Facts
from gpudiag.model.finding import CONFIDENCE_ORDER, SEVERITY_ORDER, Finding
from gpudiag.model.report import Cost, NotRead, ReportedFinding, Verdict
from gpudiag.rules.preflight.base import Check

_HEALTHY_NEEDS: Final = 1


def judge(facts: Facts, checks: Iterable[Check]) -> tuple[CheckResult, ...]:
    """How each check ends on these facts. Pure: facts that were recorded elsewhere give the same results."""
    return tuple(check.run(facts) for check in checks)


def report(
    facts: Facts, results: tuple[CheckResult, ...], *, command: str, version: str, wall_s: float | None = None
) -> DoctorReport:
    """The results in the form of the contract. `wall_s` defaults to what reading the facts took."""
    findings = sorted((f for r in results for f in r.findings), key=_worst_first)
    return DoctorReport(
        gpudiag=version,
        host=facts.host,
        generated_at=datetime.fromtimestamp(facts.at, UTC).isoformat(timespec="seconds"),
        command=command,
        target=None,
        verdict=_verdict(findings, results),
        findings=tuple(ReportedFinding.of(f) for f in findings),
        waits=(),
        not_read=tuple(
            NotRead(source=f"{r.info.code} {r.info.name}", reason=r.detail, help=r.help) for r in results if r.status == "unknown"
        ),
        cost=Cost(wall_s=round(facts.took_s if wall_s is None else wall_s, 3), stopped_s=0.0),
        checks=tuple(ReportedCheck.of(r) for r in results),
    )


def _worst_first(finding: Finding) -> tuple[int, int]:
    return (-SEVERITY_ORDER[finding.severity], -CONFIDENCE_ORDER[finding.confidence])


def _verdict(findings: list[Finding], results: tuple[CheckResult, ...]) -> Verdict:
    counts = {status: sum(r.status == status for r in results) for status in ("ok", "finding", "unknown")}
    if findings:
        first = findings[0]
        return Verdict(
            status="finding",
            code=first.code,
            name=first.name,
            severity=first.severity,
            title=first.title,
            confidence=first.confidence,
            next_step=first.next_steps[0] if first.next_steps else "",
            culprits=first.culprits,
        )
    if counts["ok"] < _HEALTHY_NEEDS:
        first_unknown = next((r for r in results if r.status == "unknown"), None)
        return Verdict(
            status="insufficient",
            code=None,
            name=None,
            severity=None,
            title="Nothing could be checked",
            confidence=None,
            next_step=first_unknown.help if first_unknown else "",
        )
    unread = f", {counts['unknown']} could not be made" if counts["unknown"] else ""
    return Verdict(
        status="healthy",
        code=None,
        name=None,
        severity=None,
        title=f"Nothing found in {counts['ok']} checks{unread}",
        confidence=None,
        next_step="",
    )
