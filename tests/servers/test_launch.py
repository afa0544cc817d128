"""What `gpudiag launch` plans for the real engines: it starts them as they are, and what it refuses they refuse."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpudiag.launch import host, planning
from gpudiag.launch.planning import Planned
from gpudiag.launch.request import Request
from gpudiag.model.flags import FlagTable
from gpudiag.model.metrics import acceptance, speculation_between
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight import registry
from tests.launch.launching import free_port
from tests.launch.requests import VERSIONS, table
from tests.servers import environments
from tests.servers.running import Bench, Engine, server

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]

ENGINES = ["vllm", "sglang"]


def make(bench: Bench, engine: Engine, *arguments: str, draft: Path | None = None, tensor_parallel: int = 1) -> Planned:
    request = Request(
        engine=engine,
        python=str(environments.python_of(engine)),
        model=str(bench.target),
        draft=str(draft) if draft else None,
        tensor_parallel=tensor_parallel,
        port=free_port(),
        arguments=("--served-model-name", "tiny", *arguments),
    )
    return planning.make(request, host.look(engine, str(bench.directory / "runs")), os.environ, Path.home())


def codes(planned: Planned) -> set[str]:
    results = [check.run(planned.facts) for check in registry.CHECKS if check.info.category == "launch"]
    assert [r.info.code for r in results if r.status == "unknown"] == []
    return {f.code for r in results for f in r.findings}


def test_vllm_comes_up_with_eagle3_and_nothing_else_said(bench: Bench) -> None:
    planned = make(bench, "vllm", draft=bench.drafter)
    assert codes(planned) == set()
    with server(planned.plan) as run:
        run.serving()
        run.complete(8)
        before = run.metrics().speculation
        run.complete(64)
        after = run.metrics().speculation
        assert before is not None
        assert after is not None
        assert acceptance(speculation_between(before, after)) == (2.0, 1 / 3)


def test_sglang_comes_up_with_two_ranks_and_nothing_else_said(bench: Bench) -> None:
    planned = make(bench, "sglang", tensor_parallel=2)
    assert codes(planned) == set()
    assert "EAGLE-3 off: SGLang has no EAGLE" in planned.plan.notes[0]
    with server(planned.plan) as run:
        run.serving()
        assert len(run.complete(8)["choices"][0]["text"]) > 0
        assert run.metrics() is not None


def test_a_pair_that_is_refused_before_the_start_is_refused_by_sglang(bench: Bench) -> None:
    """A tree of drafts without its depth. The other pairs need kernels that a CPU has not."""
    words = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(bench.drafter))
    planned = make(bench, "sglang", *words, "--speculative-eagle-topk", "4", "--attention-backend", "triton")
    assert codes(planned) == {"GPD705"}
    ended = run_to_its_end(planned)
    assert ended.returncode != 0
    assert "AssertionError" in ended.stderr
    assert "speculative" in ended.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_the_recorded_options_are_those_of_the_version(bench: Bench, engine: Engine) -> None:
    reading = make(bench, engine).facts.flags
    assert isinstance(reading, Ok), reading
    assert (reading.value.version or "").partition("+")[0] == VERSIONS[engine]
    assert spellings(reading.value) == spellings(table(engine))


def spellings(known: FlagTable) -> set[tuple[str, ...]]:
    return {flag.names for flag in known.flags}


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ("--tp", "2")),
        ("vllm", ("--dtype", "bf16")),
        ("sglang", ("--gpu-memory-utilization", "0.5")),
        ("sglang", ("--sampling-backend", "none")),
    ],
)
def test_what_is_refused_before_the_start_is_refused_by_the_engine(bench: Bench, engine: Engine, words: tuple[str, ...]) -> None:
    planned = make(bench, engine, *words)
    assert codes(planned) == {"GPD701"}
    ended = run_to_its_end(planned)
    assert ended.returncode == 2, ended.stderr[-2000:]
    assert words[0] in ended.stderr


def run_to_its_end(planned: Planned) -> subprocess.CompletedProcess[str]:
    """Start what was planned, which is to end by itself."""
    around = {**os.environ, **dict(planned.plan.environment)}
    return subprocess.run(planned.plan.argv, env=around, capture_output=True, text=True, timeout=300)
