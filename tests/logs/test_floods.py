"""Lines that each begin something are read up to a number, in one log and in many."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudiag.logs import facts
from gpudiag.logs.builder import Builder
from gpudiag.logs.facts import read_facts

HEADERS = b"Traceback (most recent call last):\n" * 400_000


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read: list[int] = []

    def line(builder: Builder, *_: object) -> None:
        read.append(1)
        builder.read = len(read)

    monkeypatch.setattr(Builder, "line", line)
    monkeypatch.setattr(Builder, "listening", True)
    return read


def test_a_log_of_nothing_but_headers_is_not_read_whole(
    lines: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MOST_READ_LINES", 1000)
    (tmp_path / "a.log").write_bytes(HEADERS)
    told = read_facts([str(tmp_path / "a.log")])
    assert "lines with tracebacks were too many" in told.sources[0].notes[0]
    assert len(lines) < 320_000


def test_nor_are_many_logs(lines: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_LINES_OF_ALL", 1000)
    for number in range(5):
        (tmp_path / f"{number}.log").write_bytes(HEADERS[:350_000])
    read_facts([str(tmp_path)])
    assert len(lines) == 10_000
