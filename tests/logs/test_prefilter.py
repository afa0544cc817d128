"""Looking only where a literal stands must see what looking at every line sees."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.logs import facts
from gpudiag.logs.engines.base import WORKING
from gpudiag.logs.events import SIGNS, STEPS
from gpudiag.logs.facts import read_facts
from gpudiag.logs.prefilter import ENDS, MIDDLE, TRACEBACK, Finder, Hits
from tests.logs.support import DATA, facts_of, noise, raw, report_of
from tests.support.checkout import ROOT

NAMES = sorted(path.name.removesuffix(".log.gz") for path in DATA.glob("*.log.gz"))


class EveryLine(Finder):
    """Finds something in every line."""

    def offsets(self, block: bytes) -> list[int]:
        return [match.start() for match in re.finditer(rb"^", block, re.MULTILINE)]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_passed_over(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = facts_of(raw(name))
    monkeypatch.setattr(facts, "Finder", EveryLine)
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
    literals = [b"ab", b"cd", b"zz", *(b"literal %d" % i for i in range(60))]
    hits = Hits(Finder(literals).offsets(b"..ab..cd..ab\ncd..abliteral 59"))
    found, position = [], 0
    while (at := hits.after(position)) >= 0:
        found.append(at)
        position = at + 1
    assert found == [2, 6, 10, 13, 17, 19]


def test_a_literal_inside_another_one_does_not_hide_its_line() -> None:
    assert Finder([b"SIGTERM received", b"SIGTERM"]).offsets(b"x\nSIGTERM\nSIGTERM received\n") == [2, 10]


def test_what_is_said_all_the_time_is_left_out_but_for_tracebacks() -> None:
    finder = Finder([TRACEBACK, b"Health check", b"Xid"], limit=3)
    block = b"Health check\nTraceback (most recent call last):\n" * 4 + b"Xid\n"
    assert len(finder.offsets(block)) == 9
    assert finder.left_out == [b"Health check"]
    assert len(finder.offsets(block)) == 5


def test_the_middle_is_searched_for_everything_but_the_talk_of_a_busy_server() -> None:
    assert {s.anchor.encode() for s in SIGNS} <= set(MIDDLE)
    assert set(ENDS) - set(MIDDLE) == {s.anchor.encode() for s in STEPS if s.order >= WORKING}


@pytest.mark.parametrize(
    ("name", "code", "rank"),
    [
        ("vllm_raise_rank1", "GPD220", 1),
        ("vllm_sigkill_rank1", "GPD210", 1),
        ("sglang_sigsegv_tp1", "GPD217", 1),
        ("sglang_gpu_sigkill_rank1", "GPD304", 1),
        ("vllm_libnuma", "GPD203", None),
    ],
)
def test_a_death_in_the_middle_of_a_large_log_is_found(name: str, code: str, rank: int | None) -> None:
    """Kilobytes of a crash between megabytes of a server that came up and megabytes of what was printed after it."""
    engine = name.partition("_")[0]
    quiet = b"".join(line for line in noise(engine) if not any(s.anchor.encode() in line for s in STEPS))
    filler = quiet * (12_000_000 // len(quiet))
    report = report_of(facts_of(filler + raw(name) + b"\n" + filler))
    assert (report.verdict.code, report.verdict.culprits[0].rank) == (code, rank), report.verdict.title


def test_a_loud_line_in_the_middle_is_told(tmp_path: Path) -> None:
    line = b"INFO:     10.0.0.7:1234 - Health check failed. Server couldn't get a response from detokenizer\n"
    path = tmp_path / "server.log"
    path.write_bytes(line * (12_000_000 // len(line)))
    facts = read_facts([str(path)])
    assert "lines with 'Health check failed' were too many" in facts.sources[0].notes[0]
    assert any("Health check failed" in n.reason for n in report_of(facts).not_read)


def test_a_flood_of_tracebacks_ends_the_search_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the log is read all the same."""
    monkeypatch.setattr(facts, "MOST_READ_LINES", 1000)
    survived = b'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in handle\nValueError: bad request\n'
    fatal = b'Traceback (most recent call last):\n  File "/srv/b.py", line 9, in <module>\nKeyError: 7\n'
    told = facts_of(survived * (12_000_000 // len(survived)) + fatal)
    assert "lines with tracebacks were too many" in told.sources[0].notes[0]
    assert told.tracebacks[-1].headline == "KeyError: 7"


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
