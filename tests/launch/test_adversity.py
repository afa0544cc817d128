"""What happens around a run: its supervisor is killed or stopped, its directory goes away, its disk is full."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudiag.collect.family import descendants
from gpudiag.errors import UsageError
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.own_process import command
from gpudiag.launch.run_directory import RunDirectory
from gpudiag.launch.start import start
from gpudiag.launch.supervisor import Request
from gpudiag.tui.rundir import read_run_as_it_is
from tests.launch.foreground import foreground
from tests.launch.launching import LIMIT_S, alive, launched, plan_of
from tests.support.processes import wait_until


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_killed_supervisor_leaves_the_server_and_one_is_told_of_it(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run")) as it:
        run = it.until_ready()
        os.kill(run.started.supervisor_pid, signal.SIGKILL)
        code, _, talk = it.end()
        server = run.started.server_pid
        assert code == 4
        assert f"nobody watches it: gpudiag attach {server}; end it with: kill {server}" in talk
        assert b'"text"' in run.ask(10)
        os.kill(server, signal.SIGTERM)
        wait_until(lambda: not alive(server), "the server ends as was said", LIMIT_S)


def test_the_screen_does_not_believe_what_a_killed_supervisor_wrote_last(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run")) as run:
        run.ready()
        directory, supervisor = run.started.run, run.started.supervisor_pid
        shown = read_run_as_it_is(directory).progress
        assert shown is not None
        assert (shown.state, shown.sentence) == (run.progress.state, run.progress.sentence)
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not alive(supervisor), "it is dead", LIMIT_S)
        shown = read_run_as_it_is(directory).progress
        assert shown is not None
        assert (shown.state, shown.serving) == ("serving", None)
        assert f"its supervisor (pid {supervisor}) is gone, so nothing new is known" in shown.sentence
        for pid in run.family:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(run.started.server_pid), "the server is dead", LIMIT_S)
        shown = read_run_as_it_is(directory).progress
        assert shown is not None
        assert shown.state == "killed"
        assert f"its supervisor (pid {supervisor}) is gone too" in shown.sentence


def test_both_are_killed(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run")) as it:
        run = it.until_ready()
        it.process.send_signal(signal.SIGSTOP)
        for pid in (run.started.supervisor_pid, *run.family):
            os.kill(pid, signal.SIGKILL)
        it.process.send_signal(signal.SIGCONT)
        code, _, talk = it.end()
        assert code == 4
        assert f"the supervisor (pid {run.started.supervisor_pid}) is gone, and so is the server" in talk


def test_a_terminal_that_closes_while_the_supervisor_starts_leaves_a_watched_server(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    run.create()
    near, far = os.pipe()
    os.close(near)
    child = subprocess.Popen(
        command("gpudiag.launch.supervisor_process", str(far)), stdin=subprocess.PIPE, pass_fds=(far,), start_new_session=True
    )
    os.close(far)
    try:
        assert child.stdin is not None
        with child.stdin as to:
            to.write(msgspec.json.encode(Request(plan=plan, options=SuperviseOptions(tui=False))))
        wait_until(lambda: (p := run.progress()) is not None and p.state == "serving", "it is watched and ready", LIMIT_S)
        child.send_signal(signal.SIGTERM)
        assert child.wait(LIMIT_S) == 0
        assert (last := run.progress()) is not None
        assert last.state == "stopped"
    finally:
        for pid in descendants([child.pid]):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        child.wait()


def test_ctrl_c_reaches_a_supervisor_that_is_stopped(tmp_path: Path) -> None:
    with foreground(plan_of(tmp_path / "run")) as it:
        run = it.until_ready()
        family = run.family
        os.kill(run.started.supervisor_pid, signal.SIGSTOP)
        it.process.send_signal(signal.SIGINT)
        assert it.end()[0] == 0
        assert not any(alive(pid) for pid in family)


def test_a_server_without_its_run_directory_is_still_watched_and_ended(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run")) as run:
        run.ready()
        family, victim = run.family, run.worker(1)
        shutil.rmtree(run.started.run)
        os.kill(victim, signal.SIGKILL)
        reports = run.started.run / "evidence"
        wait_until(lambda: any(reports.glob("*/report.txt")), "evidence is taken in a new one", LIMIT_S)
        run.signal(signal.SIGTERM)
        wait_until(lambda: not alive(run.started.supervisor_pid), "the supervisor ends", LIMIT_S)
        assert not any(alive(pid) for pid in family)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("may not mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(OSError, match="No space left"):
        (disk / "more").write_bytes(b"x" * 4096)


def test_on_a_full_disk_the_verdict_is_told_and_that_nothing_was_kept(small_disk: Path) -> None:
    """Of a hang while it serves, of its end, and of a death."""
    with foreground(plan_of(small_disk / "run")) as it:
        run = it.until_ready()
        fill(small_disk)
        os.kill(run.worker(1), signal.SIGSTOP)
        seen = run.until(lambda p: p.state == "stalled", "the stop is told")
        assert (seen.code, seen.report) == ("GPD305", None)
        assert "rank 1" in seen.sentence
        assert seen.sentence.endswith("; evidence not kept: No space left on device")
        shown = read_run_as_it_is(run.started.run).progress
        assert shown is not None
        assert shown.sentence == seen.sentence, "what the screen reads"
        os.kill(run.worker(1), signal.SIGCONT)
        run.until(lambda p: p.state == "serving", "it goes on")
        os.kill(run.started.server_pid, signal.SIGKILL)
        code, _, talk = it.end()
        # What the supervisor saw of the end is a line of events.log, for which there is no room either.
        assert code == 4, talk
        told = " ".join(talk.split())
        assert "serving stalled: GPD305" in told
        assert "killed by SIGKILL" in told
        assert told.count("evidence not kept: No space left on device") == 2


def test_no_server_starts_that_cannot_be_written_down(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    plan = plan_of(tmp_path / "run")
    plan = msgspec.structs.replace(plan, argv=(sys.executable, "-c", f"open({str(mark)!r}, 'w')"))
    (tmp_path / "run").mkdir()
    # A log that nobody can open for writing stands for the full disk, which only root could make.
    (tmp_path / "run" / "server.log").mkdir()
    with pytest.raises(UsageError, match=r"cannot write in the run directory .*: Is a directory") as raised:
        start(plan, SuperviseOptions(tui=False))
    assert "--record DIR" in raised.value.help
    assert not mark.exists()
