"""The foreground of a start: its lines, its report, its exit codes; what Ctrl-C and a lost terminal do."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from gpudiag.launch.run_directory import RunDirectory
from tests.launch.foreground import foreground
from tests.launch.launching import LIMIT_S, alive, plan_of
from tests.support.processes import wait_until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_ready_then_ctrl_c(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run")) as it:
        family = it.until_ready().family
        it.process.send_signal(signal.SIGINT)
        code, out, talk = it.end()
        assert (code, out) == (0, "")
        lines = talk.splitlines()
        assert any(line.startswith("ready after ") for line in lines)
        assert "ending the server; once more to kill it" in lines
        assert lines[-1] == f"log and evidence: {tmp_path / 'run'}"
        assert not any(alive(pid) for pid in family)


def test_ctrl_c_before_it_is_ready(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run", argv=("--fault", "hang"))) as it:
        directory = RunDirectory(tmp_path / "run")
        wait_until(lambda: (p := directory.progress()) is not None and len(p.phases) > 1, "it has begun", LIMIT_S)
        it.process.send_signal(signal.SIGINT)
        assert it.end()[0] == 130


def test_a_crash_is_a_finding_and_its_report_is_on_stdout(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run", argv=("--fault", "syntax"))) as it:
        code, out, talk = it.end()
        assert code == 1
        assert "GPD201" in out
        assert "ended with exit code 1: GPD201" in talk


def test_an_end_that_nothing_explains(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(plan_of(tmp_path / "run"), argv=(sys.executable, "-c", "raise SystemExit(3)"))
    with foreground(plan) as it:
        code, _, talk = it.end()
        assert code == 4
        assert "ended with exit code 3" in talk


def test_what_is_ended_while_it_hangs_is_a_finding(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run")) as it:
        run = it.until_ready()
        os.kill(run.worker(1), signal.SIGSTOP)
        run.until(lambda p: p.state == "stalled", "the stop is noticed")
        family = run.family
        it.process.send_signal(signal.SIGINT)
        code, out, talk = it.end()
        assert code == 1
        assert "GPD305" in out
        assert "stopped while it hung: GPD305 rank 1 is stopped" in talk
        assert not any(alive(pid) for pid in family)


def test_detached_it_leaves_when_the_server_is_ready(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run"), "detach") as it:
        code, _, talk = it.end()
        run = it.run
        assert code == 0
        assert f"kill {run.started.supervisor_pid}" in talk
        assert b'"text"' in run.ask(10)
        run.signal(signal.SIGTERM)
        assert run.wait_for_end().state == "stopped"


def test_whoever_leaves_the_screen_leaves_the_server(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run"), "screen") as it:
        code, _, talk = it.end()
        run = it.run
        assert code == 0
        assert f"a screen on {tmp_path / 'run'}" in talk
        assert f"end it with: kill {run.started.supervisor_pid}" in talk
        run.ready()


def test_a_lost_terminal_takes_the_foreground_and_leaves_the_server(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run")) as it:
        run = it.until_ready()
        it.process.send_signal(signal.SIGHUP)
        assert it.end()[0] == -signal.SIGHUP
        assert b'"text"' in run.ask(10)
        assert run.progress.state == "serving"
