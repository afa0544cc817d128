"""The corpus is as wide as it says, its scoring tells right from wrong, and the order of lists changes no verdict."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpudiag.assets import assets
from gpudiag.session.load import load
from gpudiag.session.pipeline import reports_of
from tests.faults import screens
from tests.faults.accuracy import ask, figures, passed, table
from tests.faults.asking import printed
from tests.faults.case import REAL, Answer, Culprit, Fault, Staged, Variation
from tests.faults.recorded import RECORDINGS, shuffled
from tests.faults.registry import FAULTS, LOOK_ALIKES, SCREENS, UNDECIDED

SERVERS = sorted([*RECORDINGS.glob("servers/*.gpudiag"), *RECORDINGS.glob("gpu/h200x2/*.gpudiag")])


def test_it_is_wide_enough() -> None:
    codes = Counter(fault.code for fault in FAULTS)
    assert len(FAULTS) >= 60
    assert len(codes) >= 25
    assert None not in codes
    assert max(codes.values()) <= 4, codes.most_common(3)
    assert sum(fault.ground in REAL for fault in FAULTS) >= 20
    assert len(LOOK_ALIKES) >= 25
    assert all(fault.code is None for fault in (*LOOK_ALIKES, *UNDECIDED))


def test_every_code_has_its_runbook() -> None:
    pages = {path.name.partition("-")[0] for path in assets("runbooks")}
    assert {fault.code for fault in FAULTS} <= pages


def said(code: str | None, *, rank: int | None = None, severity: str = "error", status: str = "finding") -> dict[str, Any]:
    culprits = [] if rank is None else [{"rank": rank, "pid": 7, "file": "/opt/x/llama.py", "line": 3, "path": None}]
    verdict = {"status": status, "code": code, "severity": severity, "confidence": "strong", "title": "t", "culprits": culprits}
    return {"verdict": verdict, "findings": [{"severity": severity}] if code else []}


def answer(fault: Fault, report: dict[str, Any], culprit: Culprit | None = None) -> Answer:
    return Answer(fault, Staged(("attach", "1"), culprit or Culprit()), report, 1.0)


def test_what_counts_as_right() -> None:
    planted, code = FAULTS[0], FAULTS[0].code
    assert answer(planted, said(code, rank=1), Culprit(rank=1, file="llama.py", line=3)).is_right
    assert answer(planted, said(code, rank=0), Culprit(rank=0)).is_right
    for report in (said(code, rank=2), said("GPD999", rank=1), said(code), said(None, severity="", status="insufficient")):
        assert not answer(planted, report, Culprit(rank=1)).is_right
    assert not answer(planted, said(code, rank=1), Culprit(rank=1, file="config.py")).is_right
    assert not answer(planted, said(code, rank=1), Culprit(ranks=frozenset({0, 1}))).is_right


@pytest.mark.parametrize("report", [said("GPD301", rank=1), {**said(None), "findings": [{"severity": "error"}]}])
def test_an_error_said_of_a_look_alike_fails_the_run(report: dict[str, Any]) -> None:
    right = [answer(FAULTS[0], said(FAULTS[0].code))]
    good, bad = figures(right, [], 1, 0), figures([*right, answer(LOOK_ALIKES[0], report)], [], 1, 0)
    assert passed(good)
    assert not passed(bad)
    assert "errors said: 1" in table(bad)


def test_an_abstention_is_a_miss() -> None:
    found = figures([answer(FAULTS[0], said(None, severity="", status="insufficient"))], [], 1, 0)
    assert (found["faults"]["code"], found["faults"]["abstained"]) == (0.0, 1.0)
    assert not passed(found)


def test_one_entry_goes_the_whole_way() -> None:
    (entry,) = (fault for fault in FAULTS if fault.name == "h200-killed")
    assert ask(entry, 1, random.Random(5)).is_right  # noqa: S311


def test_a_screen_that_says_otherwise_is_noticed(tmp_path: Path) -> None:
    (entry,) = (fault for fault in SCREENS if fault.name == "screen-h200-stale-lock")
    assert ask(entry, 0, random.Random(5)).is_right  # noqa: S311
    with entry.stage(Variation(0, random.Random(5), tmp_path)) as staged:  # noqa: S311
        shown, report = screens.screen(staged.arguments[1:]), printed(staged.arguments)
    assert screens.differences(shown, report) == []
    for key, other in (("code", "GPD301"), ("title", "rank 0 waits"), ("confidence", "weak"), ("next_step", "reboot")):
        changed = {**report, "verdict": {**report["verdict"], key: other}}
        assert len(screens.differences(shown, changed)) == 1, key
    (culprit,) = report["verdict"]["culprits"]
    wrong: tuple[tuple[str, object], ...] = (("rank", 7), ("pid", 99), ("line", 1), ("path", "/tmp/other/lock"))
    for name, other_value in wrong:
        changed = {**report, "verdict": {**report["verdict"], "culprits": [{**culprit, name: other_value}]}}
        assert len(screens.differences(shown, changed)) == 1, name
    assert screens.differences(shown, {**report, "target": {**report["target"], "state": "serving"}}) == ["state SERVING"]


@pytest.mark.parametrize("path", SERVERS, ids=lambda p: p.stem)
def test_the_order_of_lists_changes_no_verdict(path: Path) -> None:
    seen = load(path).observation
    (plain,) = reports_of(seen, command="explain")
    for seed in range(3):
        (other,) = reports_of(shuffled(seen, random.Random(seed)), command="explain")  # noqa: S311
        assert other.verdict == plain.verdict
