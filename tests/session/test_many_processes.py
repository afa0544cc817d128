"""A recording with a great many processes is judged in time that grows with their number, or refused."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from gpudiag.cli import main
from gpudiag.errors import RecordingError
from gpudiag.model.process import Process
from gpudiag.model.snapshot import Observation
from gpudiag.session.load import MAX_ALL_PROCESSES, MAX_PROCESSES, MAX_ROOTS, load
from gpudiag.session.record import save
from tests.session.samples import process, snapshot


def rank(number: int, **other: object) -> Process:
    named = process(number + 2, f"sglang::scheduler_TP{number}")
    return msgspec.structs.replace(named, name="sglang::schedul", session=1, **other)


def recorded(path: Path, processes: list[Process], *, roots: tuple[int, ...] = (1,), looks: int = 2) -> Path:
    first = msgspec.structs.replace(snapshot(*processes), roots=roots)
    later = [msgspec.structs.replace(first, at=first.at + n, monotonic_s=first.monotonic_s + n) for n in range(1, looks)]
    save(Observation(snapshots=(first, *later)), path, redact=False)
    return path


@pytest.mark.parametrize("kind", ["ranks", "stopped", "dead", "orphans"])
def test_as_many_as_are_let_in_end_in_time(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each took minutes when something was looked up by going through all processes for each of them."""
    root = msgspec.structs.replace(process(1, "python3", "-m", "sglang.launch_server"), ppid=0)
    of_kind: dict[str, dict[str, object]] = {
        "ranks": {},
        "stopped": {"state": "T"},
        "dead": {"state": "Z"},
        "orphans": {"ppid": 0},
    }
    count = MAX_PROCESSES - 1
    ranks = [rank(n, **(of_kind[kind] if kind in of_kind else {"ppid": n + 1})) for n in range(count)]
    path = recorded(tmp_path / "many.gpudiag", [root, *ranks])
    began = time.process_time()
    assert main.run(["explain", str(path), "--json"]) in (0, 1, 5)
    assert time.process_time() - began < 20
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "roots", "looks"),
    [(MAX_PROCESSES + 1, 1, 1), (MAX_PROCESSES, 1, MAX_ALL_PROCESSES // MAX_PROCESSES + 1), (200, 200, 1)],
)
def test_more_than_any_server_has_is_refused(count: int, roots: int, looks: int, tmp_path: Path) -> None:
    path = recorded(
        tmp_path / "many.gpudiag", [process(n) for n in range(1, count + 1)], roots=tuple(range(1, roots + 1)), looks=looks
    )
    with pytest.raises(RecordingError, match=f"more than a recording may .*({MAX_PROCESSES}|{MAX_ROOTS})"):
        load(path)
