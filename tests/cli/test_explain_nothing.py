"""gpudiag explain where nothing is to be explained: exit 2 and one line; a log without a cause is no such case."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from gpudiag.cli import main
from gpudiag.model.snapshot import Observation
from gpudiag.session.record import save
from tests.session.samples import snapshot


@pytest.mark.parametrize("kind", ["empty", "random", "named"])
def test_nothing_that_is_a_log(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = random.Random(1)  # noqa: S311
    for number in range(0 if kind == "empty" else 20):
        (tmp_path / f"{number}.log").write_bytes(noise.randbytes(20_000))
    given = [str(tmp_path / "0.log")] if kind == "named" else [str(tmp_path)]
    assert main.run(["explain", *given]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"gpudiag: error: nothing in {given[0]} is a log")


def test_a_log_without_a_cause_is_insufficient(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("hello\n")
    assert main.run(["explain", str(tmp_path / "a.log")]) == 0


def test_a_recording_without_processes_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.gpudiag"
    save(Observation(snapshots=(msgspec.structs.replace(snapshot(), roots=()),)), path)
    assert main.run(["explain", str(path)]) == 3
    assert f"{path} holds no server" in capsys.readouterr().err
