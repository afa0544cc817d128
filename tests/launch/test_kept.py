"""What is explained of a run's directory, in which every look of the supervisor lies."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from gpudiag.cli import main
from gpudiag.launch.kept import kept_of
from gpudiag.launch.options import SuperviseOptions
from gpudiag.session.load import load
from gpudiag.session.record import save
from tests.faults.launched import request
from tests.launch.launching import launched, plan_of
from tests.support.checkout import ROOT

HASTY = SuperviseOptions(tui=False, patience=0.1)
SERVED = ROOT / "tests/recordings/hangs/quiet-healthy_busy.gpudiag"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def explained(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    assert main.run(["explain", str(directory), "--json"]) == 1
    said = capsys.readouterr()
    return json.loads(said.out), said.err


def earlier_look(run: Path) -> None:
    """One of a server that was well, as of a request that took long."""
    folder = run / "evidence" / "00-unanswered"
    folder.mkdir()
    save(load(SERVED).observation, folder / "server.gpudiag")
    (folder / "report.json").write_text("{}")


def test_a_hang_is_told_from_its_own_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "wedge")), HASTY) as run:
        run.ready()
        earlier_look(run.run.path)
        client = request(run, 1)
        with client:
            run.until(lambda p: p.state == "stalled", "the hang is found", 60.0)
        verdict = run.report.verdict
        report, said = explained(run.run.path, capsys)
        assert (report["verdict"]["code"], report["verdict"]["title"]) == (verdict.code, verdict.title)
        assert f"other looks at this server lie in {run.run.path}/evidence" in said


def test_a_crash_is_not_told_from_a_look_at_a_server_that_was_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "crash")), HASTY) as run:
        run.wait_for_end()
        earlier_look(run.run.path)
        kept = kept_of(run.run.path)
        assert kept is not None
        assert (kept.recording, kept.others) == (None, 1)
        report, _ = explained(run.run.path, capsys)
        assert (report["verdict"]["code"], report["verdict"]["culprits"][0]["rank"]) == ("GPD220", 1)


def test_a_run_that_was_copied_is_told_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with launched(plan_of(tmp_path / "run")) as run:
        run.ready()
        os.kill(run.worker(1), signal.SIGSTOP)
        run.until(lambda p: p.state == "stalled", "the stop is noticed")
        copy = shutil.copytree(run.run.path, tmp_path / "copy")
    report, _ = explained(copy, capsys)
    assert (report["verdict"]["code"], report["verdict"]["culprits"][0]["rank"]) == ("GPD305", 1)


def test_a_directory_without_a_run_is_read_as_before(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    assert kept_of(tmp_path) is None
