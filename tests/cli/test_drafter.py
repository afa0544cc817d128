"""gpudiag drafter: the group, and the exit codes of check."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from gpudiag.cli import main
from gpudiag.cli.drafter import SUBCOMMANDS, drafter
from tests.doctor import checkpoints
from tests.doctor.checkpoints import integers, weights


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = drafter.get_command(click.Context(drafter), name)
    assert command is not None
    assert (command.name, bool(command.help)) == (name, True)
    assert main.run(["drafter", name, "--help"]) == 0
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 80


def test_a_pair_that_fits_ends_with_0_and_one_that_does_not_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(checkpoints.target(tmp_path / "target"))
    good = str(checkpoints.drafter(tmp_path / "eagle3"))
    bad = str(checkpoints.drafter(tmp_path / "eagle3-bad", {**weights(), "d2t": integers(list(checkpoints.ROWS))}))
    assert main.run(["drafter", "check", good, "--target", target, "--engine", "sglang", "--json"]) in (0, 5)
    assert json.loads(capsys.readouterr().out)["findings"] == []
    assert main.run(["drafter", "check", bad, "--target", target, "--engine", "sglang", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["schema"], report["command"], report["verdict"]["code"]) == ("gpudiag.report/1", "drafter check", "GPD603")


def test_a_drafter_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["drafter", "check", "somebody/eagle3"]) == 2
    said = capsys.readouterr().err
    assert "somebody/eagle3: no such directory" in said
    assert "hf download somebody/eagle3 --local-dir eagle3" in said
