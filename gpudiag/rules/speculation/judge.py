"""From a measurement to a report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from gpudiag.model.finding import SEVERITY_ORDER, Finding
from gpudiag.model.report import Cost, NotRead, ReportedFinding, Verdict
from gpudiag.model.speculation import Measurement, SpeculationReport
from gpudiag.rules.base import Rule
from gpudiag.rules.speculation import (
    acceptance_below_break_even,
    context_too_short,
    drafts_never_accepted,
    feedback_mismatch,
    reading_inconclusive,
    undertrained_or_off_domain,
    verify_round_too_slow,
)
from gpudiag.rules.speculation.standing import better_steps, percent, sentence, spread, standing
from gpudiag.rules.verdict import verdict_of, verdict_without_finding

RULES: Final[tuple[Rule[Measurement], ...]] = (
    acceptance_below_break_even.RULE,
    verify_round_too_slow.RULE,
    drafts_never_accepted.RULE,
    context_too_short.RULE,
    feedback_mismatch.RULE,
    undertrained_or_off_domain.RULE,
)
"""In the order in which they make the verdict: whether it pays first, then why."""


def findings_of(m: Measurement) -> tuple[Finding, ...]:
    """What the rules say; that a reading is inconclusive only where none of them speaks."""
    made = [f for rule in RULES for f in rule.evaluate(m)]
    if not made:
        made = list(reading_inconclusive.RULE.evaluate(m))
    return tuple(sorted(made, key=lambda f: -SEVERITY_ORDER[f.severity]))


def report(
    m: Measurement, *, version: str, host: str, at: float, wall_s: float, not_read: tuple[NotRead, ...] = ()
) -> SpeculationReport:
    """The measurement in the form of the contract. `at` is Unix time."""
    findings = findings_of(m)
    return SpeculationReport(
        gpudiag=version,
        host=host,
        generated_at=datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        command="drafter measure",
        target=None,
        verdict=verdict_of(findings[0]) if findings else _without_finding(m),
        findings=tuple(ReportedFinding.of(f) for f in findings),
        waits=(),
        not_read=not_read,
        cost=Cost(wall_s=round(wall_s, 3), stopped_s=0.0),
        measurement=m,
    )


def _without_finding(m: Measurement) -> Verdict:
    if m.acceptance is None:
        return _nothing_accepted(m)
    length = spread(m.acceptance.length)
    if standing(m) == "above" and m.cost is not None:
        gain = f": {m.cost.speedup.value:.2f} times the speed of a plain run" if m.cost.speedup is not None else ""
        return verdict_without_finding("healthy", f"{sentence(m)}{gain}", _other_steps(m))
    shares = ", ".join(percent(c.value) for c in m.acceptance.conditional)
    return verdict_without_finding(
        "healthy",
        f"Accepts {length} per round, {shares} position by position, as a healthy drafter does; whether it pays is not measured",
        "gpudiag drafter measure URL --plain URL-OR-REPORT, of the same server without speculation",
    )


def _nothing_accepted(m: Measurement) -> Verdict:
    run = m.served
    if run is not None and run.steps == 0:
        spent = sum(r.decode_s or 0.0 for r in run.requests)
        tokens = sum(r.decode_tokens or 0 for r in run.requests)
        step = f": a decode step takes {1e3 * spent / tokens:.2f} ms at concurrency {run.load.concurrency}" if tokens else ""
        return verdict_without_finding(
            "insufficient",
            f"This server does not speculate{step}",
            "save it with --json -o plain.json, and give it as --plain when the drafter is on",
        )
    return verdict_without_finding(
        "insufficient",
        "The server does not say what it accepts",
        "SGLang: --enable-metrics; vLLM: without --disable-log-stats, or with --per-request-spec-decode-metrics summary",
    )


def _other_steps(m: Measurement) -> str:
    row = better_steps(m)
    if row is None or not row.steps:
        return ""
    return f"try {row.steps} instead of {m.steps} steps: about {row.speedup:.2f} times by this measurement"
