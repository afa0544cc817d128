"""A supervised server of real processes: how it comes up, what is noticed, what is kept, how it ends."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gpudiag.collect.family import descendants
from gpudiag.errors import UsageError
from gpudiag.launch import history
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.run_directory import run_of
from gpudiag.launch.start import Started, start
from gpudiag.model.run import RunProgress
from gpudiag.session.load import load
from tests.launch.launching import Launched, alive, launched, plan_of
from tests.support.processes import wait_until

HASTY = SuperviseOptions(tui=False, patience=0.1)
"""For what is slow only by the supervisor's patience with it."""

STARTER = """
import sys, msgspec
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.start import start
from gpudiag.model.run import LaunchPlan
started = start(msgspec.json.decode(sys.argv[1], type=LaunchPlan), SuperviseOptions())
print(started.supervisor_pid, started.server_pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory of the person who launches."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_a_server_comes_up_answers_and_ends_on_request(tmp_path: Path) -> None:
    home = tmp_path / "state" / "gpudiag" / "runs"
    environment = (("HF_TOKEN", "hunter3"), ("NCCL_DEBUG", "INFO"))
    plan = msgspec.structs.replace(plan_of(home / "one", argv=("--api-key", "hunter2")), environment=environment)
    with launched(plan) as run:
        run.ready()
        _is_private_and_told(run, home)
        ready_at = run.progress.at
        family = run.family
        assert len(family) == 3
        run.until(lambda p: p.at > ready_at + 6, "six seconds are over")
        assert not run.progress.report
        assert b"vllm:generation_tokens_total 1\n" in run.fetch("/metrics"), "an idle server gets one request, when it comes up"
        assert b'"text"' in run.ask(10)
        run.signal(signal.SIGINT)
        end = run.wait_for_end()
        assert (end.state, end.exit_status) == ("stopped", 0)
        assert [p.phase for p in end.phases] == ["import", "distributed-init", "weight-load", "kv-allocation", "warm-up", "ready"]
        assert not any(alive(pid) for pid in family)
        assert not run.run.supervisor_log.read_bytes()
    assert set(history.load(history.path_for(plan))) >= {"import", "weight-load", "warm-up"}


def _is_private_and_told(run: Launched, home: Path) -> None:
    assert stat.S_IMODE(run.run.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(run.run.server_log.stat().st_mode) == 0o600
    assert "hunter" not in (run.run.path / "manifest.json").read_text()
    found = run_of(run.started.server_pid, home)
    assert found is not None
    assert (found[1].server_pid, found[1].plan.port) == (run.started.server_pid, run.plan.port)
    assert dict(found[1].environment)["NCCL_DEBUG"] == "INFO"


def test_a_stopped_rank_is_named_and_the_server_is_left_alone(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run")) as run:
        run.ready()
        victim = run.worker(1)
        os.kill(victim, signal.SIGSTOP)
        stopped = time.monotonic()
        progress = run.until(lambda p: p.state == "stalled", "the stop is noticed")
        assert time.monotonic() - stopped < 10
        verdict = run.report.verdict
        assert (verdict.code, verdict.culprits[0].pid) == ("GPD305", victim)
        assert "GPD305" in progress.sentence
        recording = load(run.run.path / Path(progress.report or "").with_name("server.gpudiag"))
        assert recording.observation.last.process(victim) is not None
        os.kill(victim, signal.SIGCONT)
        run.until(lambda p: p.state == "serving", "it goes on")
        assert b'"text"' in run.ask(10)


def test_a_killed_rank_is_looked_at_before_the_server_follows_it(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run")) as run:
        run.ready()
        victim = run.worker(1)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        run.until(lambda p: p.report is not None, "evidence is taken")
        assert time.monotonic() - killed < 10
        assert run.report.verdict.code in ("GPD304", "GPD210")
        assert "rank 1" in run.report.verdict.title
        assert f"(pid {victim}, rank 1) end with exit code -9" in run.run.events_log.read_text()
        told = run.until(lambda p: p.code is not None, "it counts as hung")
        # The root still answers: without the rank that is no reason to take it back.
        later = run.until(lambda p: p.at > told.at + 3, "it was looked at again")
        assert (later.state, later.code) == ("stalled", told.code)


def test_a_crash_at_start_is_told_from_the_log(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "crash"))) as run:
        end = run.wait_for_end()
        assert (end.state, end.exit_status) == ("crashed", 1)
        verdict = run.report.verdict
        assert (verdict.code, verdict.culprits[0].rank) == ("GPD220", 1)
        assert "the weights of this rank are of another shape" in verdict.title


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "syntax"))) as run:
        end = run.wait_for_end()
        assert end.state == "crashed"
        assert (run.report.verdict.code, run.report.verdict.culprits[0].file) == ("GPD201", "/opt/model/llama.py")


def test_a_start_that_goes_silent_is_looked_at(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "hang")), HASTY) as run:
        run.until(lambda p: p.state == "stalled", "the hang is found")
        verdict = run.report.verdict
        assert verdict.culprits[0].pid == run.worker(1), verdict
        assert run.report.verdict.severity == "error"
        family = run.family
        run.signal(signal.SIGTERM)
        assert run.wait_for_end().state == "stopped"
        assert not any(alive(pid) for pid in family)


def test_a_hang_while_it_serves_is_found_by_a_request_of_one_token(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "wedge")), HASTY) as run:
        run.ready()
        with socket.create_connection(("127.0.0.1", run.plan.port)) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            run.until(lambda p: p.state == "stalled", "the hang is found", 60.0)
        verdict = run.report.verdict
        assert verdict.culprits[0].pid == run.worker(1), verdict
        assert verdict.severity == "error"


def test_a_request_that_takes_long_is_no_hang(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    with launched(plan_of(tmp_path / "run", argv=("--fault", "slow", "--weights", str(gate))), HASTY) as run:
        run.ready()
        with socket.create_connection(("127.0.0.1", run.plan.port)) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            looked = run.until(lambda p: p.report is not None, "it is looked at", 60.0)
            assert looked.state == "serving"
            assert run.report.verdict.severity != "error", run.report.verdict
            gate.unlink()
            assert client.recv(12) == b"HTTP/1.0 200"


@pytest.mark.parametrize("name", ["weights", "weights.mapped"])
def test_a_load_is_followed_in_bytes(tmp_path: Path, name: str) -> None:
    """By read calls, and as memory that grows."""
    size = 60 << 20
    (tmp_path / name).write_bytes(os.urandom(1 << 20) * 60)
    plan = plan_of(tmp_path / "run", argv=("--weights", str(tmp_path / name)), checkpoint_bytes=size)
    with launched(plan) as run:

        def half(progress: RunProgress) -> bool:
            last = progress.phases[-1]
            return last.phase == "weight-load" and (last.done or 0) > size / 2

        seen = run.until(half, "half of it is loaded")
        load_ = seen.phases[-1]
        assert load_.total == size
        assert (load_.rate_per_s or 0) > 1e6
        assert load_.eta_s is not None
        assert " of 62.9 MB" in seen.sentence
        run.ready()
        assert [why for why in os.listdir(run.run.evidence) if "ready" not in why] == []


def test_a_server_that_logs_nothing_is_ready_when_it_answers(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "mute")), HASTY) as run:
        run.ready()
        assert run.run.server_log.read_bytes() == b""


def test_somebody_else_on_the_port_is_not_the_server(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "one")) as other:
        other.ready()
        plan = plan_of(tmp_path / "two", argv=("--fault", "hang"), port=other.plan.port)
        with launched(plan, HASTY) as run:
            seen = run.until(lambda p: p.report is not None, "its silence is looked at")
            assert "ready" not in [p.phase for p in seen.phases]


def test_ranks_that_sleep_while_they_start(tmp_path: Path) -> None:
    """No processor time, no word, no lock: only the time until which it sleeps, in its memory, tells that it is long."""
    with launched(plan_of(tmp_path / "run", argv=("--fault", "asleep")), HASTY) as run:
        run.until(lambda p: p.state == "stalled", "the sleep is found")
        verdict = run.report.verdict
        assert (verdict.code, verdict.culprits[0].pid) == ("GPD329", run.worker(verdict.culprits[0].rank or 0)), verdict
        assert verdict.culprits[0].function == "work"
        assert "for another 5" in verdict.title


def test_ranks_that_pause_before_they_try_again(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "naps")), HASTY) as run:
        run.until(lambda p: p.report is not None, "it is looked at")
        assert run.report.verdict.severity != "error", run.report.verdict
        assert run.progress.state == "starting"


def test_a_killed_root_leaves_no_orphan_and_no_litter(tmp_path: Path) -> None:
    name = f"gpudiag-test-litter-{os.getpid()}"
    with launched(plan_of(tmp_path / "run", argv=("--litter", name))) as run:
        run.ready()
        family = run.family
        assert Path(f"/dev/shm/{name}").exists()
        other = Path(f"/dev/shm/{name}-of-somebody-else")
        other.write_bytes(b"")
        try:
            os.kill(run.started.server_pid, signal.SIGKILL)
            end = run.wait_for_end()
            assert (end.state, end.exit_status) == ("killed", -9)
            assert run.report.verdict.code == "GPD210", run.report.verdict
            assert not any(alive(pid) for pid in family)
            assert not Path(f"/dev/shm/{name}").exists()
            assert not Path(f"/tmp/{name}").exists()
            assert other.exists()
        finally:
            other.unlink()


def test_a_server_that_does_not_listen_is_killed_on_the_second_request(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run", argv=("--fault", "stubborn"))) as run:
        run.ready()
        family = run.family
        run.signal(signal.SIGINT)
        run.until(lambda p: p.state == "stopping", "it is asked")
        assert alive(run.started.server_pid)
        run.signal(signal.SIGINT)
        end = run.wait_for_end()
        assert (end.state, end.exit_status) == ("stopped", -9)
        assert not any(alive(pid) for pid in family)


def test_the_server_outlives_whoever_started_it(tmp_path: Path) -> None:
    """The starter is killed together with its session, as a lost terminal does it."""
    plan = plan_of(tmp_path / "run")
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, msgspec.json.encode(plan).decode()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert starter.stdout is not None
    supervisor_pid, server_pid = map(int, starter.stdout.readline().split())
    run = Launched(Started(run=tmp_path / "run", supervisor_pid=supervisor_pid, server_pid=server_pid), plan)
    try:
        os.killpg(starter.pid, signal.SIGHUP)
        os.killpg(starter.pid, signal.SIGKILL)
        starter.communicate()
        run.ready()
        assert b'"text"' in run.ask(10)
        run.signal(signal.SIGTERM)
        assert run.wait_for_end().state == "stopped"
    finally:
        for pid in (*run.family, *descendants([run.started.supervisor_pid])):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_program_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "run")
    plan = msgspec.structs.replace(plan, argv=("/nowhere/vllm", "serve"))
    with pytest.raises(UsageError, match="cannot start /nowhere/vllm: No such file or directory"):
        start(plan, SuperviseOptions(tui=False))


def test_a_directory_with_another_run_is_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "run")
    with launched(plan) as run:
        with pytest.raises(UsageError, match="holds another run already"):
            start(plan, SuperviseOptions(tui=False))
        assert alive(run.started.server_pid)


def test_nothing_that_the_server_prints_is_lost_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    with launched(plan_of(tmp_path / "run")) as run:
        run.ready()
        os.kill(run.started.supervisor_pid, signal.SIGKILL)
        wait_until(lambda: not alive(run.started.supervisor_pid), "the supervisor is dead")
        assert b'"text"' in run.ask(10)
        os.kill(run.started.server_pid, signal.SIGTERM)
        wait_until(lambda: not run.family, "the server ended by itself")
        assert "Application startup complete." in run.run.server_log.read_text()
