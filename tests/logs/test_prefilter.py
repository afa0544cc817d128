"""Looking only where a literal stands must see what looking at every line sees."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpudiag.logs import facts
from gpudiag.logs.events import SIGNS, STEPS
from gpudiag.logs.prefilter import FULL, SHORT, Hits
from tests.logs.support import DATA, facts_of, raw
from tests.support.checkout import ROOT

NAMES = sorted(path.name.removesuffix(".log.gz") for path in DATA.glob("*.log.gz"))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_passed_over(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = facts_of(raw(name))
    monkeypatch.setattr(facts, "FULL", (b"",))
    every = facts_of(raw(name))
    assert [t.headline for t in quick.tracebacks] == [t.headline for t in every.tracebacks]
    assert quick.events == every.events
    assert quick.milestones == every.milestones
    assert (quick.engine, quick.version, quick.root_pid, quick.world_size) == (
        every.engine,
        every.version,
        every.root_pid,
        every.world_size,
    )


def test_hits_come_in_order_and_none_is_lost() -> None:
    block = b"..ab..cd..ab\ncd..ab"
    hits = Hits(block, (b"ab", b"cd", b"zz"))
    found, position = [], 0
    while (at := hits.after(position)) >= 0:
        found.append(at)
        position = at + 1
    assert found == [2, 6, 10, 13, 17]


def test_the_short_list_is_part_of_the_full_one_and_short() -> None:
    assert set(SHORT) <= set(FULL)
    assert len(SHORT) <= 12
    assert min(len(literal) for literal in SHORT) >= 9, "short literals are slow to search for"


def test_no_anchor_is_so_common_that_it_stops_the_scan() -> None:
    healthy = raw("vllm_healthy") + raw("sglang_healthy")
    lines = healthy.count(b"\n")
    for anchor in {s.anchor for s in SIGNS} | {s.anchor for s in STEPS}:
        assert healthy.count(anchor.encode()) < lines / 4, anchor


def test_the_benchmark_finds_its_cause_in_little_memory() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "explain.py", "--megabytes", "30"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    result = json.loads(done.stdout)
    assert result["verdict"] == {"code": "GPD220", "rank": 1, "line": 543}
    assert result["peak_mib"] < 200
