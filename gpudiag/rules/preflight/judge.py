"""From facts to a report."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from gpudiag.model.doctor import CheckResult, DoctorReport, ReportedCheck
from gpudiag.model.facts import Facts
from gpudiag.model.finding import CONFIDENCE_ORDER, SEVERITY_ORDER, Finding
from gpudiag.model.report import Cost, NotRead, ReportedFinding, Verdict
from gpudiag.rules.preflight.base import Check
from gpudiag.rules.preflight.choose import choices
from gpudiag.rules.verdict import verdict_of, verdict_without_finding


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
        choices=choices(facts, results),
    )


def _worst_first(finding: Finding) -> tuple[int, int]:
    return (-SEVERITY_ORDER[finding.severity], -CONFIDENCE_ORDER[finding.confidence])


def _verdict(findings: list[Finding], results: tuple[CheckResult, ...]) -> Verdict:
    if findings:
        return verdict_of(findings[0])
    passed = sum(r.status == "ok" for r in results)
    unknown = [r for r in results if r.status == "unknown"]
    if not passed:
        return verdict_without_finding("insufficient", "Nothing could be checked", unknown[0].help if unknown else "")
    unread = f", {len(unknown)} could not be made" if unknown else ""
    return verdict_without_finding("healthy", f"Nothing found in {passed} checks{unread}")
