"""gpudiag drafter measure against real servers: it agrees with their own counters to the last token."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpudiag.cli import main
from gpudiag.launch.serving import Door
from gpudiag.model.metrics import SpeculationCounts, speculation_between
from tests.servers.running import Bench, Server, server
from tests.servers.test_vllm import DRAFTS, speculation

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1500)]

WARM_TOKENS = 8
CANARIES = 3


def measure(run: Server, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{run.plan.port}"
    assert main.run(["drafter", "measure", url, "--max-tokens", "64", "--requests", "12", "--json", *arguments]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def counted(run: Server) -> tuple[SpeculationCounts, float]:
    metrics = run.metrics()
    assert metrics.speculation is not None
    assert metrics.generated_tokens is not None
    return metrics.speculation, metrics.generated_tokens


def rounds_beside_canaries(run: Server) -> tuple[float, float, float]:
    """Tokens of others, rounds and accepted drafts while one request of 64 tokens and some canaries are served."""
    door = Door(run.plan)
    assert door.canary().well
    before, tokens = counted(run)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(run.complete, 64)
        for _ in range(CANARIES):
            assert door.canary().well
        answer.result()
    after, tokens_after = counted(run)
    moved = speculation_between(before, after)
    assert moved.rounds is not None
    assert moved.accepted is not None
    return tokens_after - tokens - 64, moved.rounds, moved.accepted


@pytest.mark.parametrize("detail", ["none", "detailed"])
def test_vllm_with_a_drafter_of_known_acceptance(bench: Bench, capsys: pytest.CaptureFixture[str], detail: str) -> None:
    """Its first draft is always right, its later ones never are: 2.00 tokens a round, 33.3 % of three drafts."""
    arguments = (*speculation(bench.drafter), "--per-request-spec-decode-metrics", detail)
    with server(bench.plan("vllm", *arguments, tensor_parallel=1), canary=False) as run:
        run.serving()
        before, tokens = counted(run)
        report = measure(run, capsys)
        after, tokens_after = counted(run)
        canaries = rounds_beside_canaries(run)
    m = report["measurement"]
    best, (whole,) = m["acceptance"], m["others"]
    assert best["source"] == ("counters" if detail == "none" else "responses")
    for found in (best, whole):
        assert (found["length"]["value"], found["rate"]) == (2.0, 1 / DRAFTS)
    assert [s["value"] for s in best["survival"]] == [1.0, 0.0, 0.0]
    # What the server counted in all this time is what was measured, and the request that warms up.
    moved = speculation_between(before, after)
    ours = sum(r["tokens"] for r in m["served"]["requests"])
    assert tokens_after - tokens == ours + WARM_TOKENS
    for name in ("rounds", "drafted", "accepted"):
        assert best[name] == whole[name]
    warm = WARM_TOKENS // 2
    assert (moved.rounds, moved.accepted) == (best["rounds"] + warm, best["accepted"] + warm)
    assert moved.drafted == best["drafted"] + DRAFTS * warm
    assert m["served"]["tokens_of_others"] == 0
    # A canary that came in its midst would have moved the counters of speculation, were its prompt a single token.
    assert list(canaries) == [CANARIES, 32, 32]
    assert report["verdict"]["code"] == "GPD608"


def test_a_plain_run_gives_the_cost_of_a_round(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "plain.json"
    with server(bench.plan("vllm", tensor_parallel=1), canary=False) as run:
        run.serving()
        url = f"http://127.0.0.1:{run.plan.port}"
        arguments = ["--max-tokens", "64", "--requests", "12", "--json", "-o", str(saved), "--no-redact"]
        assert main.run(["drafter", "measure", url, *arguments]) == 0
    assert json.loads(saved.read_text())["measurement"]["served"]["steps"] == 0
    with server(bench.plan("vllm", *speculation(bench.drafter), tensor_parallel=1), canary=False) as run:
        run.serving()
        cost = measure(run, capsys, "--plain", str(saved))["measurement"]["cost"]
    assert cost["ratio"]["low"] < cost["ratio"]["value"] < cost["ratio"]["high"]
    assert cost["speedup"]["value"] == pytest.approx(2.0 / cost["ratio"]["value"], rel=0.15)


def test_sglang_counts_the_tokens_that_its_answers_name(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """It cannot run EAGLE-3 without a GPU: this is the plain run."""
    with server(bench.plan("sglang", tensor_parallel=1), canary=False) as run:
        run.serving()
        for arguments in ((), ("--raw",)):
            report = measure(run, capsys, *arguments)
            served = report["measurement"]["served"]
            assert (served["engine"], served["steps"], served["tokens_of_others"]) == ("sglang", 0, 0)
            assert all(r["tokens"] == 64 and r["decode_tokens"] == 63 for r in served["requests"])
            assert "does not speculate" in report["verdict"]["title"]
