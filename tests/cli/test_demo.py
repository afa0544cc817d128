"""The demo as a new user runs it: a verdict, only then what was planted, and nothing left behind."""

from __future__ import annotations

import os
import re
import select
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudiag.demo.scenarios import SCENARIOS
from tests.cli import programs
from tests.cli.test_main import state_of


@pytest.fixture
def temporary() -> Iterator[Path]:
    """An empty directory for temporary files, short enough for the paths of sockets."""
    with tempfile.TemporaryDirectory(prefix="g") as directory:
        yield Path(directory)


def test_it_names_the_culprit_and_then_says_what_was_planted(temporary: Path) -> None:
    result = programs.gpudiag("demo", "--victim", "2", "--seed", "5", TMPDIR=str(temporary))
    assert result.returncode == 1
    assert "✗ GPD307  rank 2 waits for a lock file" in result.stdout
    assert "planted" not in result.stdout
    first, last = result.stderr.splitlines()
    assert first == "gpudiag: starting a server of 4 ranks ..."
    assert last == "gpudiag: what was planted: stale-lock on rank 2, which is GPD307; again: gpudiag demo stale-lock --seed 5"
    assert list(temporary.iterdir()) == []


def test_what_only_looks_like_a_hang_is_none(temporary: Path) -> None:
    result = programs.gpudiag("demo", "idle", "--json", "--ranks", "2", TMPDIR=str(temporary))
    assert result.returncode == 0
    assert '"code": "GPD318"' in result.stdout
    assert '"command": "demo"' in result.stdout


def test_the_list() -> None:
    result = programs.gpudiag("demo", "--list")
    assert result.returncode == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == [s.name for s in SCENARIOS]


def test_it_keeps_the_server_if_asked_to(temporary: Path) -> None:
    result = programs.gpudiag("demo", "rank-stopped", "--keep", "--ranks", "2", TMPDIR=str(temporary))
    told = re.search(r"keeps running as pid (\d+)", result.stderr)
    assert told is not None
    root = int(told[1])
    assert f"end it: kill {root}" in result.stderr
    assert state_of(root) == "S"
    stopped = re.search(r"who     rank \d+, pid (\d+)", result.stdout)
    assert stopped is not None
    assert state_of(int(stopped[1])) == "T"
    again = programs.gpudiag("attach", str(root), "--json", "--interval", "0.3")
    assert '"code": "GPD305"' in again.stdout
    descriptor = os.pidfd_open(root)
    os.kill(root, signal.SIGTERM)
    with os.fdopen(descriptor) as ended:
        assert select_readable(ended.fileno())


def select_readable(descriptor: int) -> bool:
    """Whether a process descriptor says within 20 s that its process ended."""
    return bool(select.select([descriptor], [], [], 20)[0])
