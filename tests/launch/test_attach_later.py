"""gpudiag attach to a server that gpudiag launch started."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudiag.cli.main import run as gpudiag
from gpudiag.model.run import RUN_VARIABLE
from tests.launch.launching import launched, plan_of


@pytest.mark.parametrize("told", [True, False])
def test_it_points_to_the_directory_of_the_run(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plan = plan_of(tmp_path / "run")
    if told:
        plan = replace(plan, environment=((RUN_VARIABLE, plan.run_directory),))
    with launched(plan) as server:
        server.ready()
        gpudiag(["attach", str(server.started.server_pid), "--once"])
        err = capsys.readouterr().err
    assert (f"started by gpudiag launch; its log, and evidence taken so far: {plan.run_directory}" in err) == told
