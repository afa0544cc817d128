"""A real SGLang whose drafter fails on three long answers of six, each from its own place on: lengths do not explain it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpudiag.drafter.acceptance import dead_ends, stretches
from gpudiag.drafter.measure import measurement, saved_run
from gpudiag.rules.speculation.judge import findings_of

RECORDED = Path(__file__).parent / "recorded" / "sglang-0.5.17-eagle3-long-measure.json"


def test_some_answers_that_fail_are_no_fall_with_length() -> None:
    run = saved_run(RECORDED, "--other")
    ends = [sum(r.steps[-40:]) / 40 for r in run.requests]
    assert sum(end < 0.1 for end in ends) == 3
    first, *_, last = stretches(run)
    assert last.length.value < first.length.value
    assert last.length.high is not None
    assert first.length.low is not None
    assert last.length.high > first.length.low


def test_answers_that_end_without_an_accepted_draft_are_said() -> None:
    run = saved_run(RECORDED, "--other")
    found = dead_ends(run)
    assert found is not None
    assert (found.answers, found.dead, found.rounds, found.since) == (6, 3, 88, 189)
    (said,) = findings_of(measurement(run))
    assert said.code == "GPD612"
    assert "3 of 6 long answers end without an accepted draft, the first from token 189 on" in said.title
    assert "drafter replay" in said.next_steps[0]
    alive = msgspec.structs.replace(run, requests=tuple(r for r in run.requests if any(r.steps[-40:])))
    assert dead_ends(alive) is None
    assert not any("end without" in said.title for said in findings_of(measurement(alive)))
