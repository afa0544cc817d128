"""A real vLLM on the CPU: it comes up, serves with a drafter of known acceptance, and each fault is named with its evidence."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gpudiag.model.metrics import acceptance, speculation_between
from gpudiag.model.run import RunProgress
from gpudiag.session.load import load
from tests.servers.running import SOON_S, Bench, Server, damage_package, server, stop
from tests.servers.weights import rename_weight

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]

ENGINE: Final = "vllm"
LLAMA = "vllm/model_executor/models/llama.py"
DRAFTS = 3


def stalled(progress: RunProgress) -> bool:
    return progress.state == "stalled"


def speculation(drafter: Path) -> tuple[str, str]:
    told = {"method": "eagle3", "model": str(drafter), "num_speculative_tokens": DRAFTS}
    return "--speculative-config", json.dumps(told)


def has_recording(run: Server) -> bool:
    """Whether evidence that can be judged elsewhere is on disk."""
    files = sorted(run.run.evidence.glob("*/server.gpudiag"))
    return bool(files) and load(files[-1]).observation.last.processes != ()


@pytest.mark.few
def test_it_serves_and_three_faults_are_named(bench: Bench) -> None:
    """One start: ready, a completion whose acceptance is known, a stopped rank, a stopped engine core, a killed rank."""
    with server(bench.plan(ENGINE, *speculation(bench.drafter)), canary_idle_s=600.0) as run:
        run.serving()
        # What the request of one token had drafted is counted with the next step.
        run.complete(8)
        before = run.metrics().speculation
        assert len(run.complete(64)["choices"][0]["text"]) > 0
        after = run.metrics().speculation
        assert before is not None
        assert after is not None
        counts = speculation_between(before, after)
        assert (counts.rounds or 0) > 20
        assert acceptance(counts) == (2.0, 1 / DRAFTS)
        assert [p.phase for p in run.progress.phases][-2:] == ["warm-up", "ready"]

        rank = run.member("VLLM::Worker_TP1")
        _stop_and_go_on(run, rank)
        _stop_and_go_on(run, run.member("VLLM::EngineCore"))

        family = run.family
        os.kill(rank, signal.SIGKILL)
        report = run.verdict_within(lambda p: p.report is not None and "died" in p.report, time.monotonic(), "the death")
        assert (report.verdict.code, report.verdict.culprits[0].pid) in (("GPD304", rank), ("GPD210", rank)), report.verdict
        end = run.after_its_end()
        assert end.verdict.code in ("GPD210", "GPD304"), end.verdict
        assert run.progress.state == "killed"
        assert has_recording(run)
        run.ends_without_a_trace(family)


def _stop_and_go_on(run: Server, pid: int) -> None:
    began = stop(pid)
    report = run.verdict_within(stalled, began, f"the stop of {pid}")
    assert (report.verdict.code, report.verdict.culprits[0].pid) == ("GPD305", pid)
    os.kill(pid, signal.SIGCONT)
    run.until(lambda p: p.state == "serving", "it goes on")
    run.complete(4)


def test_a_request_ends_it_and_nothing_is_left(bench: Bench) -> None:
    shared = set(os.listdir("/dev/shm"))
    with server(bench.plan(ENGINE)) as run:
        run.serving()
        family = run.family
        made = {name for name in os.listdir("/dev/shm") if name not in shared and name.startswith(("psm_", "vllm_dist"))}
        assert made
        run.signal(signal.SIGINT)
        run.ends_without_a_trace(family)
        assert run.progress.state == "stopped"
        assert not made & set(os.listdir("/dev/shm"))


def test_a_killed_front_end_leaves_no_orphan(bench: Bench) -> None:
    """Left alone, the engine core and both ranks live on and hold their memory."""
    with server(bench.plan(ENGINE)) as run:
        run.serving()
        family = run.family
        os.kill(run.started.server_pid, signal.SIGKILL)
        run.until(lambda p: p.state == "killed", "the end", 60.0)
        assert run.report.verdict.code == "GPD210", run.report.verdict
        assert has_recording(run)
        run.ends_without_a_trace(family)


def test_a_rank_that_is_stopped_while_it_starts(bench: Bench) -> None:
    with server(bench.plan(ENGINE)) as run:
        rank = run.member("VLLM::Worker")
        report = run.verdict_within(stalled, stop(rank), "the stop")
        assert (report.verdict.code, report.verdict.culprits[0].pid) == ("GPD305", rank)
        assert has_recording(run)
        family = run.family
        run.signal(signal.SIGINT)
        run.ends_without_a_trace(family)


def test_a_syntax_error_in_a_model_file(bench: Bench) -> None:
    overlay = damage_package(ENGINE, LLAMA, bench.directory, lambda text: text + "\nx = f(a for a in y, z)\n")
    with server(bench.plan(ENGINE, packages=overlay)) as run:
        verdict = run.after_its_end().verdict
        assert (verdict.code, verdict.culprits[0].file) == ("GPD201", str(overlay / LLAMA)), verdict
        assert run.progress.state == "crashed"


def test_weights_that_are_missing(bench: Bench) -> None:
    model = bench.copy_of(bench.target)
    (model / "model.safetensors").unlink()
    with server(bench.plan(ENGINE, model=model)) as run:
        assert run.after_its_end().verdict.code == "GPD224"


def test_a_model_that_is_nowhere(bench: Bench) -> None:
    with server(bench.plan(ENGINE, model=bench.directory / "nowhere")) as run:
        assert run.after_its_end().verdict.code == "GPD211"


def test_weights_that_are_cut_off(bench: Bench) -> None:
    model = bench.copy_of(bench.target)
    with open(model / "model.safetensors", "r+b") as file:
        file.truncate(100_000)
    with server(bench.plan(ENGINE, model=model)) as run:
        assert run.after_its_end().verdict.code == "GPD212"


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


def test_a_drafter_with_a_renamed_weight(bench: Bench) -> None:
    drafter = bench.copy_of(bench.drafter)
    rename_weight(drafter / "model.safetensors", "fc.weight", "fz.weight")
    with server(bench.plan(ENGINE, *speculation(drafter))) as run:
        assert run.after_its_end().verdict.code == "GPD215"


WAITS_FOR_A_LOCK = """

_load_weights = LlamaForCausalLM.load_weights


def _load_weights_and_wait(self, weights):
    loaded = _load_weights(self, weights)
    from torch.distributed import get_rank
    from torch.utils.file_baton import FileBaton

    if get_rank() == 1:
        FileBaton(%r).wait()
    return loaded


LlamaForCausalLM.load_weights = _load_weights_and_wait
"""
"""What torch.utils.cpp_extension.load does where somebody else is building the same extension."""


def test_a_start_that_waits_for_a_stale_lock(bench: Bench) -> None:
    lock = bench.directory / "lock"
    lock.touch()
    overlay = damage_package(ENGINE, LLAMA, bench.directory, lambda text: text + WAITS_FOR_A_LOCK % str(lock))
    with server(bench.plan(ENGINE, packages=overlay)) as run:
        run.until(lambda p: p.phases[-1].phase in ("weight-load", "kv-allocation"), "the weights load", 400.0)
        began = time.monotonic()
        run.until(stalled, "the wait is found", 60.0)
        verdict = run.report.verdict
        assert (verdict.code, verdict.culprits[0].path) == ("GPD307", str(lock)), verdict
        assert time.monotonic() - began <= SOON_S + 2
        rank = run.member("VLLM::Worker_TP1")
        assert verdict.culprits[0].pid in (None, rank)
        lock.unlink()
        run.serving()
        family = run.family
        run.signal(signal.SIGINT)
        run.ends_without_a_trace(family)
