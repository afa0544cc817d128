"""Every scenario of the demo, under random names: the right verdict, and never a wrong one when a source is withheld."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpudiag.demo.run import start
from gpudiag.demo.scenarios import SCENARIOS, Scenario
from gpudiag.model.report import Report
from tests.demo.renamed import rename_scripts
from tests.support.diagnosing import SOURCES, Source, describe, judge, look_at, without

WITHOUT_VICTIM = frozenset({"idle"})


def is_right(report: Report, scenario: Scenario, victim: int | None) -> bool:
    """The code, and the victim among the culprits (a compiler is named together with the rank that waits for it)."""
    if report.verdict.code != scenario.expected_code:
        return False
    if scenario.name in WITHOUT_VICTIM:
        return True
    named = {c.rank for c in report.verdict.culprits}
    return victim in named or f"rank {victim} " in report.verdict.title


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_verdict_under_any_name_and_with_any_source_withheld(scenario: Scenario, tmp_path: Path) -> None:
    rng = random.SystemRandom()
    seed, ranks = rng.randrange(1 << 30), rng.randint(2, 6)
    copy = rename_scripts(tmp_path / "copy", rng)
    with start(scenario.name, ranks=ranks, seed=seed, scripts=copy.scripts, names=copy.names) as running:
        running.wait_until_stuck()
        observation = look_at(running.root_pid)
        victim = running.victim_rank
    report = judge(observation)
    assert is_right(report, scenario, victim), f"seed {seed}, {ranks} ranks, victim {victim}: {describe(report)}"
    for source in SOURCES:
        check_withheld(judge(without(observation, source)), scenario, victim, source, f"seed {seed}, {ranks} ranks")


def check_withheld(report: Report, scenario: Scenario, victim: int | None, source: Source, how: str) -> None:
    right = is_right(report, scenario, victim) or report.verdict.status == "insufficient"
    assert right, f"{how}, victim {victim}, {source} withheld: {describe(report)}"
