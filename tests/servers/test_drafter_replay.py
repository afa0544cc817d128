"""Replay against a real vLLM: every round foretold, and a drafter that is served damaged is not called healthy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.cli import main
from gpudiag.model.replay import DraftCounts
from tests.servers import environments
from tests.servers.running import Bench, server
from tests.servers.weights import rotate_rows

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]

PROMPTS = ("import socket", "def run(self, task):", "class Parser:", "return None if", "for name in names", "raise ValueError(")


def replayed(bench: Bench, served: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The report on a server of `served`, replayed with the drafter as it is meant to be."""
    told = {"method": "eagle3", "model": str(served), "num_speculative_tokens": 3}
    options = ("--speculative-config", json.dumps(told), "--per-request-spec-decode-metrics", "detailed")
    prompts = bench.directory / "prompts.txt"
    prompts.write_text("\n".join(PROMPTS) + "\n")
    plan = bench.plan("vllm", *options, tensor_parallel=1)
    with server(plan, canary_idle_s=600.0) as run:
        run.serving()
        given = ["drafter", "replay", str(bench.drafter), f"http://127.0.0.1:{plan.port}", "--target", str(bench.target)]
        given += ["--python", str(environments.python_of("vllm")), "--prompts", str(prompts), "--raw", "--max-tokens", "40"]
        main.run([*given, "--ignore-eos", "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_round_is_foretold(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    report = replayed(bench, bench.drafter, capsys)
    replay = report["replay"]
    assert replay["measured"] == replay["replayed"]
    assert replay["measured_from"] == "rounds"
    assert replay["measured"]["rounds"] == replay["measured"]["at"][0] > 100
    assert (report["verdict"]["status"], report["findings"]) == ("healthy", [])


def test_a_damaged_drafter_is_not_called_healthy(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Every row of its head stands one too far: no draft is right, and several faults look so."""
    damaged = bench.copy_of(bench.drafter)
    rotate_rows(damaged / "model.safetensors", "lm_head.weight")
    report = replayed(bench, damaged, capsys)
    assert report["replay"]["measured"]["at"][0] <= 2
    assert msgspec.convert(report["replay"]["replayed"], DraftCounts).length == 2.0
    assert report["verdict"]["code"] == "GPD605"
    assert "not to be told apart" in report["verdict"]["title"]
    assert report["verdict"]["confidence"] == "weak"
