"""Flight recorders in a look at real processes: dumps that lie there, dumps that are asked for, and what is left alone."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudiag.collect.deadline import Guard
from gpudiag.collect.flight_look import RECENT_S, FlightRecorders
from gpudiag.collect.look import LookOptions, look, observe
from gpudiag.collect.process_reader import WITHHELD
from gpudiag.model.collective import FlightAnalysis
from gpudiag.model.reading import NOT_ASKED, Ok, Unavailable
from gpudiag.model.snapshot import Observation, Snapshot
from gpudiag.session.load import load
from gpudiag.session.record import save
from gpudiag.session.redact import Redactor
from tests.collect.helpers import state
from tests.flight_recorder.dumps import dump, write
from tests.support.checkout import ROOT
from tests.support.processes import wait_until

JOB = Path(__file__).parent / "programs" / "job.py"
QUIET = LookOptions(stacks="none")
ASK = LookOptions(stacks="none", flight_recorder=True)


@contextlib.contextmanager
def job(
    directory: Path, *, world: int = 2, pipe: bool = True, stem: str | None = None, cwd: str | None = None
) -> Iterator[list[int]]:
    """The pids: the launcher's, then the ranks' in order."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "RANK"))}
    environment["TORCH_FR_DUMP_TEMP_FILE"] = stem or str(directory / "dump_")
    if pipe:
        environment["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = str(directory / "pipe_")
    command = [sys.executable, str(JOB), str(directory), str(world)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=cwd) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield [process.pid, *map(int, process.stdout.readline().split())]
        finally:
            process.stdin.close()
            process.wait(20)


def prepare(directory: Path) -> None:
    """What each of two ranks writes when it is asked."""
    for path in write(directory / "made", 2, 5, "size"):
        (directory / f"prepared_{path.name.rpartition('_')[2]}").write_bytes(path.read_bytes())


def analysis(snapshot: Snapshot) -> FlightAnalysis:
    assert isinstance(snapshot.flight, Ok), snapshot.flight
    return snapshot.flight.value


def test_dumps_on_disk_are_read_without_talking_to_anybody(tmp_path: Path) -> None:
    prepare(tmp_path)
    with job(tmp_path) as (root, *_):
        before = look([root], QUIET)
        write(tmp_path, 2, 5, "size")
        after = look([root], QUIET)
    assert before.flight == NOT_ASKED
    found = analysis(after)
    assert (found.ranks, found.problems[0].kind, found.asked) == ((0, 1), "size", False)
    assert found.written_at is not None
    assert found.written_at[1] <= after.at + after.took_s


def test_dumps_of_an_earlier_run_or_an_hour_ago_are_no_evidence(tmp_path: Path) -> None:
    paths = write(tmp_path, 2, 5, "size")
    for path in paths:
        os.utime(path, (time.time() - 10, time.time() - 10))
    with job(tmp_path) as (root, *_):
        assert look([root], QUIET).flight == NOT_ASKED
        at = time.time() + RECENT_S + 60
        for path in paths:
            path.touch()
        seen = look([root], QUIET)
        assert isinstance(seen.flight, Ok)
        # Nobody can wait until a dump is old: the look is moved into the future instead.
        with Guard(3.0) as guard:
            later = FlightRecorders(QUIET, guard).add_to(replace(seen, at=at))
    assert isinstance(later.flight, Unavailable)
    assert "s old" in later.flight.reason
    assert "--flight-recorder" in later.flight.help


def test_each_rank_is_asked_once_and_its_new_dump_is_read(tmp_path: Path) -> None:
    prepare(tmp_path)
    write(tmp_path, 2, 5, "missing")
    with job(tmp_path) as (root, *_):
        seen = observe([root], ASK, samples=2, interval_s=0.1)
    found = analysis(seen.last)
    assert (found.asked, found.ranks, found.problems[0].kind) == (True, (0, 1), "size")
    assert len(seen.snapshots) == 3
    assert seen.first.flight == NOT_ASKED
    # The ranks wrote between the looks: what stood still in all of them did so then.
    assert found.written_at is not None
    assert seen.first.at <= found.written_at[0] <= found.written_at[1] <= seen.last.at


def test_a_rank_that_does_not_answer_costs_the_deadline_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudiag.collect.flight_look.ANSWER_S", 1.0)
    prepare(tmp_path)
    (tmp_path / "silent_1").touch()
    with job(tmp_path) as (root, _, silent):
        seen = look([root], ASK)
    assert analysis(seen).ranks == (0,)
    (gap,) = (g for g in seen.gaps if g.source == "flight")
    assert f"pid {silent} did not write" in gap.reason


def test_without_a_pipe_it_says_how_to_have_one(tmp_path: Path) -> None:
    with job(tmp_path, pipe=False) as (root, *_):
        seen = look([root], ASK)
    assert isinstance(seen.flight, Unavailable)
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" in seen.flight.help


def test_a_stopped_rank_is_not_written_to(tmp_path: Path) -> None:
    prepare(tmp_path)
    with job(tmp_path) as (root, _, second):
        os.kill(second, signal.SIGSTOP)
        try:
            wait_until(lambda: state(second) == "T", "the rank is stopped")
            seen = look([root], ASK)
        finally:
            os.kill(second, signal.SIGCONT)
    assert analysis(seen).ranks == (0,)
    assert any(f"pid {second} is stopped" in g.reason for g in seen.gaps)


def test_a_relative_place_is_that_of_the_rank(tmp_path: Path) -> None:
    with job(tmp_path, stem="dump_", cwd=str(tmp_path)) as (root, *_):
        write(tmp_path, 2, 5, "dtype")
        assert analysis(look([root], QUIET)).problems[0].kind == "dtype"


def test_a_link_to_something_else_is_refused(tmp_path: Path) -> None:
    with job(tmp_path) as (root, *_):
        write(tmp_path, 1, 5)
        (tmp_path / "dump_1").symlink_to("/proc/self/environ")
        found = analysis(look([root], QUIET))
    assert found.ranks == (0,)
    assert "link to another kind of file" in found.skipped[str(tmp_path / "dump_1")]


def test_withheld(tmp_path: Path) -> None:
    with job(tmp_path) as (root, *_):
        write(tmp_path, 2, 5, "size")
        assert look([root], replace(QUIET, withhold=frozenset({"flight"}))).flight == WITHHELD


def test_a_recording_keeps_the_comparison_without_names(tmp_path: Path) -> None:
    for rank in range(2):
        one = dump(rank, 2, 5, "size")
        one["entries"][4]["frames"][1]["filename"] = "/home/brunhilde/serve/model.py"
        (tmp_path / f"prepared_{rank}").write_bytes(pickle.dumps(one, 2))
    with job(tmp_path) as (root, *_):
        seen = look([root], ASK)
    assert "brunhilde" in analysis(seen).problems[0].sides[0].where
    save(Observation(snapshots=(seen,)), tmp_path / "r.gpudiag", redact=True, command="attach", redactor=Redactor())
    kept = analysis(load(tmp_path / "r.gpudiag").observation.last)
    where = kept.problems[0].sides[0].where
    assert "brunhilde" not in where
    assert where.endswith("/serve/model.py:45)")
    assert kept.problems[0].sides[0].ranks == analysis(seen).problems[0].sides[0].ranks


def test_from_the_command_line(tmp_path: Path) -> None:
    prepare(tmp_path)
    with job(tmp_path) as (root, *_):
        command = [sys.executable, "-m", "gpudiag", "attach", str(root), "--flight-recorder", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=90)
    verdict = json.loads(done.stdout)["verdict"]
    assert (verdict["code"], {c["rank"] for c in verdict["culprits"]}) == ("GPD302", {0, 1}), done.stderr
    assert "[[8192]]" in verdict["title"]
    assert "has each rank that offers a pipe write its dump file anew" in done.stderr
