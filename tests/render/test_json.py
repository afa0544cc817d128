"""JSON is the contract: its keys, their order, and that it is valid whatever a target holds."""

from __future__ import annotations

import json

import msgspec
import pytest

from gpudiag.model.report import Report
from gpudiag.render.json import dumps
from tests.render.samples import SAMPLES

KEYS = [
    "schema", "gpudiag", "host", "generated_at", "command", "target", "verdict", "findings", "waits", "not_read", "cost",
]  # fmt: skip
VERDICT = ["status", "code", "name", "severity", "title", "confidence", "next_step", "culprits"]
CULPRIT = ["node", "pid", "tid", "rank", "gpu", "file", "line", "function", "path", "kernel", "host"]
FINDING = [
    "code", "name", "severity", "confidence", "title", "subjects", "evidence", "next_steps", "runbook", "consequences",
]  # fmt: skip


def test_the_keys_are_those_of_the_contract() -> None:
    plain = json.loads(dumps(SAMPLES["stale-lock-4"]()))
    assert list(plain) == KEYS
    assert plain["schema"] == "gpudiag.report/1"
    assert list(plain["target"]) == ["engine", "version", "root_pid", "state", "workers", "log_silent_s"]
    assert list(plain["target"]["workers"][0]) == ["pid", "role", "rank", "gpu", "state", "where", "waits_for"]
    assert list(plain["target"]["workers"][0]["rank"]) == ["global", "tp", "pp", "dp", "ep"]
    assert list(plain["verdict"]) == VERDICT
    assert list(plain["verdict"]["culprits"][0]) == CULPRIT
    assert list(plain["findings"][0]) == FINDING
    assert list(plain["findings"][0]["evidence"][0]) == ["source", "claim", "excerpt", "at"]
    assert list(plain["findings"][0]["consequences"][0]) == ["node", "title"]
    assert list(plain["waits"][0]) == ["waiter", "holder", "kind", "need", "evidence"]
    assert list(plain["not_read"][0]) == ["source", "reason", "help"]
    assert list(plain["cost"]) == ["wall_s", "stopped_s"]


@pytest.mark.parametrize("name", [n for n in SAMPLES if n != "hostile"])
def test_it_reads_back_as_the_same_report(name: str) -> None:
    report = SAMPLES[name]()
    assert msgspec.json.decode(dumps(report), type=Report) == report
    assert msgspec.json.decode(dumps(report, indent=2), type=Report) == report


def test_several_reports_are_an_array() -> None:
    assert [r["verdict"]["code"] for r in json.loads(dumps([SAMPLES["idle"](), SAMPLES["healthy"]()]))] == ["GPD318", None]
    assert json.loads(dumps([])) == []


def test_bytes_that_are_no_text_and_controls_do_not_break_it() -> None:
    data = dumps(SAMPLES["hostile"](), indent=2)
    assert not [c for c in data if c != "\n" and (ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F)]
    assert data.encode()
    title = json.loads(data)["verdict"]["title"]
    assert "\\xff" in title
    assert "\x1b[2J" in title
