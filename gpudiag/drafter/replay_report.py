"""A replay in the form of the report contract."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Final

from gpudiag.model.replay import AS_TRAINED, Replay, ReplayReport
from gpudiag.model.report import Cost, NotRead, ReportedFinding, Verdict
from gpudiag.rules.drafter import replayed
from gpudiag.rules.verdict import verdict_of, verdict_without_finding

_ALL: Final = 0.995


def report_of(replay: Replay, *, version: str) -> ReplayReport:
    """Judge a replay. Healthy needs a measurement: without one only the drafter is known, not how it is served."""
    findings = tuple(replayed.evaluate(replay))
    return ReplayReport(
        gpudiag=version,
        host=platform.node(),
        generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command="drafter replay",
        target=None,
        verdict=verdict_of(findings[0]) if findings else _without(replay),
        findings=tuple(ReportedFinding.of(f) for f in findings),
        waits=(),
        not_read=_not_read(replay),
        cost=Cost(wall_s=round(replay.took_s, 3), stopped_s=0.0),
        replay=replay,
    )


def _without(replay: Replay) -> Verdict:
    if replay.measured is None:
        return verdict_without_finding(
            "insufficient",
            f"The drafter can have {replay.replayed.length:.2f} tokens a round; what the server accepts is not known",
            "replay a URL, or say --measured ROUNDS:S1,S2,...",
        )
    return verdict_without_finding(
        "healthy",
        f"The drafter is served as it was trained and accepts {replay.measured.length:.2f} tokens a round",
        _harmless(replay) or "slow all the same? `gpudiag drafter measure URL` weighs what a round costs",
    )


def _harmless(replay: Replay) -> str:
    """A fault that changes next to nothing and explains the few rounds that differ; in bfloat16 they may differ by themselves."""
    best = replay.candidates[0]
    trained = next(c for c in replay.candidates if c.name == AS_TRAINED)
    if best.agrees is None or trained.agrees is None or best.agrees < _ALL or best.agrees - trained.agrees < 1 - _ALL:
        return ""
    return f"{100 * (1 - trained.agrees):.1f} % of the rounds differ, and would not if {best.says}: it costs little here"


def _not_read(replay: Replay) -> tuple[NotRead, ...]:
    if replay.measured is not None:
        return ()
    return (
        NotRead(
            source="acceptance of the server",
            reason="the texts carry no counts",
            help="vllm serve --per-request-spec-decode-metrics detailed; SGLang's /generate counts by itself",
        ),
    )
