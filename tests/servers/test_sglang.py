"""A real SGLang on the CPU: it comes up and serves, and each fault is named with its evidence."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest

from gpudiag.model.run import RunProgress
from tests.servers.running import Bench, Server, damage_package, server, stop
from tests.servers.test_vllm import WAITS_FOR_A_LOCK, has_recording

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]

ENGINE: Final = "sglang"
LLAMA = "sglang/srt/models/llama.py"


def stalled(progress: RunProgress) -> bool:
    return progress.state == "stalled"


@pytest.mark.few
def test_it_serves_and_three_faults_are_named(bench: Bench) -> None:
    """One start: ready, a completion, a stopped rank, a stopped detokenizer, a killed rank."""
    with server(bench.plan(ENGINE), canary_idle_s=600.0) as run:
        run.serving()
        assert len(run.complete(16)["choices"][0]["text"]) > 0
        rank = run.member("sglang::scheduler_TP1")
        _stop_and_go_on(run, rank)
        _stop_and_go_on(run, run.member("sglang::detokenizer"))

        family = run.family
        os.kill(rank, signal.SIGKILL)
        report = run.verdict_within(lambda p: p.report is not None and "died" in p.report, time.monotonic(), "the death")
        assert report.verdict.code in ("GPD304", "GPD210"), report.verdict
        end = run.after_its_end()
        assert end.verdict.code in ("GPD210", "GPD304"), end.verdict
        assert has_recording(run)
        run.ends_without_a_trace(family)


def _stop_and_go_on(run: Server, pid: int) -> None:
    report = run.verdict_within(stalled, stop(pid), f"the stop of {pid}")
    assert (report.verdict.code, report.verdict.culprits[0].pid) == ("GPD305", pid)
    os.kill(pid, signal.SIGCONT)
    run.until(lambda p: p.state == "serving", "it goes on")
    run.complete(4)


def test_a_request_ends_it_and_nothing_is_left(bench: Bench) -> None:
    shared = set(os.listdir("/dev/shm"))
    with server(bench.plan(ENGINE)) as run:
        run.serving()
        family = run.family
        made = {name for name in os.listdir("/dev/shm") if name not in shared and name.startswith(("psm_", "sgl"))}
        assert made
        run.signal(signal.SIGINT)
        run.ends_without_a_trace(family)
        assert run.progress.state == "stopped"
        assert not made & set(os.listdir("/dev/shm"))


def test_a_rank_that_is_stopped_while_it_starts(bench: Bench) -> None:
    with server(bench.plan(ENGINE)) as run:
        rank = run.member("sglang::scheduler_TP1")
        report = run.verdict_within(stalled, stop(rank), "the stop")
        assert (report.verdict.code, report.verdict.culprits[0].pid) == ("GPD305", rank)
        assert has_recording(run)
        family = run.family
        run.signal(signal.SIGINT)
        run.ends_without_a_trace(family)


def test_a_scheduler_that_does_nothing_while_it_starts(bench: Bench) -> None:
    """SGLang's own test switch: the schedulers sleep, with no processor time and no word in the log."""
    with server(bench.plan(ENGINE, SGLANG_TEST_STUCK_SCHEDULER_INIT="600")) as run:
        run.member("sglang::scheduler_TP1")
        run.until(lambda p: p.report is not None, "it is looked at", 400.0)
        run.until(stalled, "the sleep is found", 60.0)
        verdict = run.report.verdict
        assert verdict.severity == "error"
        assert verdict.culprits[0].function is not None
        family = run.family
        run.signal(signal.SIGINT)
        run.signal(signal.SIGINT)
        run.ends_without_a_trace(family)


def test_a_syntax_error_that_it_survives(bench: Bench) -> None:
    """The model is served by a generic class instead of its own, which cannot be imported."""
    overlay = damage_package(ENGINE, LLAMA, bench.directory, lambda text: text + "\nx = f(a for a in y, z)\n")
    with server(bench.plan(ENGINE, packages=overlay)) as run:
        run.serving()
        run.until(lambda p: p.report is not None and "ready" in p.report, "the fallback is reported", 60.0)
        verdict = run.report.verdict
        assert verdict.code == "GPD706", verdict
        assert "GPD201" in [f.code for f in run.report.findings]
        assert (verdict.culprits[0].file or "").endswith(LLAMA)
        assert "does not parse" in verdict.title
        assert "GPD706" in run.progress.sentence
        assert run.progress.state == "serving"
        family = run.family
        run.signal(signal.SIGINT)
        run.ends_without_a_trace(family)


def test_a_start_that_waits_for_a_stale_lock(bench: Bench) -> None:
    lock = bench.directory / "lock"
    lock.touch()
    overlay = damage_package(ENGINE, LLAMA, bench.directory, lambda text: text + WAITS_FOR_A_LOCK % str(lock))
    with server(bench.plan(ENGINE, packages=overlay)) as run:
        run.until(lambda p: p.phases[-1].phase in ("weight-load", "kv-allocation"), "the weights load", 400.0)
        run.until(stalled, "the wait is found", 60.0)
        verdict = run.report.verdict
        assert (verdict.code, verdict.culprits[0].path) == ("GPD307", str(lock)), verdict
        lock.unlink()
        run.serving()
        family = run.family
        run.signal(signal.SIGINT)
        run.ends_without_a_trace(family)


def test_weights_that_are_cut_off(bench: Bench) -> None:
    model = bench.copy_of(bench.target)
    with open(model / "model.safetensors", "r+b") as file:
        file.truncate(100_000)
    with server(bench.plan(ENGINE, model=model)) as run:
        assert run.after_its_end().verdict.code == "GPD212"


def test_weights_that_are_missing(bench: Bench) -> None:
    model = bench.copy_of(bench.target)
    (model / "model.safetensors").unlink()
    with server(bench.plan(ENGINE, model=model)) as run:
        assert run.after_its_end().verdict.code == "GPD224"


def test_a_model_that_is_nowhere(bench: Bench) -> None:
    with server(bench.plan(ENGINE, model=bench.directory / "nowhere")) as run:
        assert run.after_its_end().verdict.code == "GPD211"


def test_a_flag_that_is_none(bench: Bench) -> None:
    with server(bench.plan(ENGINE, "--no-such-flag", "1")) as run:
        assert run.after_its_end().verdict.code in ("GPD221", "GPD701")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_port_that_is_taken(bench: Bench, taken_port: int) -> None:
    with server(bench.plan(ENGINE, port=taken_port)) as run:
        assert run.after_its_end().verdict.code == "GPD216"
