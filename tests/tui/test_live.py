"""A real hang, watched by a real collector: what it sends, what becomes of it when it is killed, and that nothing is left."""

from __future__ import annotations

import gzip
import os
import queue
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpudiag.demo.run import Running, start
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Observation
from gpudiag.session.load import load
from gpudiag.tui.build import frame_of, frame_of_watch
from gpudiag.tui.frame import Frame, Note, unpack
from gpudiag.tui.live import Live
from gpudiag.tui.orders import Order
from gpudiag.tui.rundir import read_report
from tests.support.checkout import ROOT
from tests.support.processes import wait_until
from tests.tui.samples import launched, recorded

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def hung() -> Iterator[Running]:
    with start("stale-lock", ranks=2, seed=5) as server:
        server.wait_until_stuck()
        yield server


class Heard:
    """Everything that a source said, in order."""

    def __init__(self) -> None:
        self._said: queue.Queue[Frame | Note] = queue.Queue()

    def __call__(self, message: Frame | Note, data: bytes) -> None:
        assert data or isinstance(message, Note)
        self._said.put(message)

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        while True:
            message = self._said.get(timeout=PATIENCE_S)
            if wanted(message):
                return message


def child_of(source: Live) -> int:
    assert source._child is not None
    return source._child.process.pid


def test_it_names_the_culprit_looks_when_asked_and_leaves_nothing_behind(hung: Running) -> None:
    source, heard = Live(Order(pid=hung.root_pid, interval_s=60.0)), Heard()
    source.start(heard)
    try:
        first = heard.until(lambda m: isinstance(m, Frame))
        second = heard.until(lambda m: isinstance(m, Frame) and m.reports[0].verdict.code == "GPD307")
        assert second.number > first.number
        assert second.reports[0].verdict.culprits[0].pid == hung.victim_pid
        assert second.measures[hung.victim_pid].cpu_percent is not None
        details = unpack(second.packed)
        assert details.observation is not None
        assert details.observation.has_change
        source.ask("look")
        third = heard.until(lambda m: isinstance(m, Frame))
        assert third.number == second.number + 1
        assert third.reports[0].cost.stopped_s == 0
    finally:
        child = child_of(source)
        source.stop()
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the end of the collector")


def test_a_killed_collector_is_told_and_another_one_goes_on(hung: Running) -> None:
    source, heard = Live(Order(pid=hung.root_pid, interval_s=60.0)), Heard()
    source.start(heard)
    try:
        heard.until(lambda m: isinstance(m, Frame))
        os.kill(child_of(source), signal.SIGKILL)
        note = heard.until(lambda m: isinstance(m, Note))
        assert note.trouble
        assert "killed by signal 9" in note.text
        source.start(heard)
        assert heard.until(lambda m: isinstance(m, Frame)).number == 1
    finally:
        source.stop()


def test_a_target_that_is_not_there_is_said_once() -> None:
    source, heard = Live(Order(pid=2**22 - 7)), Heard()
    source.start(heard)
    try:
        note = heard.until(lambda m: isinstance(m, Note))
        assert note.trouble
        assert f"there is no process {2**22 - 7}" in note.text
    finally:
        source.stop()


def test_a_run_directory_is_followed_with_the_server_in_it(hung: Running, tmp_path: Path) -> None:
    run = launched("weight-load").run
    assert run is not None
    assert run.progress is not None
    manifest = msgspec.structs.replace(run.manifest, server_pid=None)
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    (tmp_path / "progress.json").write_bytes(msgspec.json.encode(run.progress))
    (tmp_path / "server.log").write_text("loading\nweights \x1b[2J\n")
    source, heard = Live(Order(directory=str(tmp_path), interval_s=60.0)), Heard()
    source.start(heard)
    try:
        frame = heard.until(lambda m: isinstance(m, Frame))
        assert frame.reports == ()
        assert frame.run.progress.phases[-1].phase == "weight-load"
        assert frame.run.tail == ("loading", "weights \\x1b[2J")
        serving = msgspec.structs.replace(manifest, server_pid=hung.root_pid)
        (tmp_path / "manifest.json").write_bytes(msgspec.json.encode(serving))
        source.ask("look")
        watched = heard.until(lambda m: isinstance(m, Frame) and bool(m.reports))
        assert watched.run.manifest.server_pid == hung.root_pid
        (tmp_path / "progress.json").write_text("{")
        source.ask("look")
        assert "damaged" in heard.until(lambda m: isinstance(m, Note)).text
    finally:
        source.stop()


def test_a_run_that_has_ended_is_told_by_its_report_and_its_whole_log(tmp_path: Path) -> None:
    run = launched("weight-load", "crashed").run
    assert run is not None
    assert run.progress is not None
    report = recorded("hangs/GPD305-rank-stopped")[-1].reports[0]
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "report.json").write_bytes(msgspec.json.encode(report))
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode(run.manifest))
    progress = msgspec.structs.replace(run.progress, report="evidence/report.json")
    (tmp_path / "progress.json").write_bytes(msgspec.json.encode(progress))
    with gzip.open(ROOT / "tests/logs/data/vllm_raise_rank1.log.gz") as log:
        (tmp_path / "server.log").write_bytes(log.read())
    source, heard = Live(Order(directory=str(tmp_path), interval_s=60.0)), Heard()
    source.start(heard)
    try:
        frame = heard.until(lambda m: isinstance(m, Frame))
    finally:
        source.stop()
    assert frame.reports[0].verdict.code == "GPD305"
    (kept,) = unpack(frame.packed).logs
    assert kept.facts is not None
    assert any("rope table" in t.message for trace in kept.facts.tracebacks for t in trace.chain())


def test_a_report_outside_the_run_directory_is_not_read(tmp_path: Path) -> None:
    run = launched("weight-load", "crashed").run
    assert run is not None
    assert run.progress is not None
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(recorded("hangs/GPD305-rank-stopped")[-1].reports[0]))
    inside = tmp_path / "run"
    inside.mkdir()
    for name in ("../report.json", str(tmp_path / "report.json")):
        told = msgspec.structs.replace(run, progress=msgspec.structs.replace(run.progress, report=name))
        assert read_report(inside, told) is None


def test_a_rank_that_has_just_been_stopped_is_named_while_older_looks_still_saw_it_run() -> None:
    looks = load(ROOT / "tests/recordings/hangs/GPD305-rank-stopped.gpudiag").observation.snapshots
    moving = looks[0]

    def earlier(process: Process) -> Process:
        """As it was while the server worked: running, with fewer ticks, at other lines."""
        if not isinstance(process.stacks, Ok):
            return process
        stacks = tuple(replace(s, frames=tuple(replace(f, line=f.line + 1) for f in s.frames)) for s in process.stacks.value)
        threads = tuple(replace(t, cpu_ticks=0, run_ns=0, state="R") for t in process.threads)
        return replace(process, state="R", threads=threads, stacks=replace(process.stacks, value=stacks))

    worked = replace(
        moving, at=moving.at - 6, monotonic_s=moving.monotonic_s - 6, processes=tuple(map(earlier, moving.processes))
    )
    watched = Observation(snapshots=(worked, *looks[-2:]))
    assert frame_of(watched, number=1, command="attach").reports[0].verdict.code is None
    assert frame_of_watch(watched, number=1).reports[0].verdict.code == "GPD305"


def test_c_frames_are_shown_and_change_no_verdict(hung: Running) -> None:
    source, heard = Live(Order(pid=hung.root_pid, interval_s=60.0)), Heard()
    source.start(heard)
    try:
        before = heard.until(lambda m: isinstance(m, Frame) and m.reports[0].verdict.code == "GPD307")
        source.ask("native")
        frame = heard.until(lambda m: isinstance(m, Frame) and m.native)
        source.ask("look")
        after = heard.until(lambda m: isinstance(m, Frame) and not m.native)
    finally:
        source.stop()
    assert (frame.number, after.number) == (before.number + 1, before.number + 2)
    assert frame.reports[0].verdict == before.reports[0].verdict
    assert after.reports[0].verdict.code == "GPD307"
    details = unpack(frame.packed)
    assert details.native is not None
    if any(gap.source == "native stacks" for gap in details.native.gaps):
        pytest.skip("this container may not stop processes")
    assert frame.reports[0].cost.stopped_s > 0
    process = details.native.process(hung.victim_pid or 0)
    assert process is not None
    assert isinstance(process.stacks, Ok)
    assert any("libc" in f.file for s in process.stacks.value for f in s.frames)
