"""The plan of a training run: numbers that can be worked out by hand, warnings, and commands that a shell reads as meant."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from gpudiag.cli import main
from gpudiag.drafter.plan_numbers import Work, drafter_parameters, estimates, target_of, token_bytes
from gpudiag.drafter.plan_steps import template_of

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
}
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "vocab_size": 163840,
        "num_attention_heads": 64,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "moe_intermediate_size": 2048,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "torch_dtype": "bfloat16",
    },
}


def work(**changes: Any) -> Work:
    plain = {
        "tokens": 6_000_000,
        "length": 8192,
        "gpus": 2,
        "epochs": 5,
        "ttt_steps": 3,
        "draft_vocab_size": 32000,
        "tflops": 989.0,
    }
    return Work(**{**plain, **changes})


def test_active_parameters_of_public_models() -> None:
    """8.0 billion less the embedding, which is a look-up; 32 billion active, as the model cards say."""
    assert target_of("m", LLAMA).active == pytest.approx(8.03e9 - 128256 * 4096, rel=0.01)
    assert target_of("m", KIMI).active == pytest.approx(32e9, rel=0.03)


def test_bytes_of_a_token() -> None:
    """4 x 7168 x 2 bytes of states, 16 of ids and mask."""
    assert token_bytes(target_of("m", KIMI), work()) == 57_344 + 16


def test_the_public_run_that_the_times_rest_on() -> None:
    """Speculators' example: 143 s to extract and 327 s to train, Llama-3.1-8B, 5,000 conversations, two H100."""
    found = {one.name: one for one in estimates(target_of("m", LLAMA), work())}
    assert found["extraction"].low < 143 < found["extraction"].high
    assert found["training"].low < 327 < found["training"].high
    assert found["hidden states"].low == 6_000_000 * (4 * 4096 * 2 + 16)


def test_measured_rates_are_taken_as_they_are() -> None:
    found = {
        one.name: one for one in estimates(target_of("m", LLAMA), work(extract_rate=3000.0, train_rate=1e4, serve_rate=2000.0))
    }
    assert [(found[n].low, found[n].high) for n in ("generation", "extraction", "training")] == [
        (3000, 3000),
        (2000, 2000),
        (3000, 3000),
    ]


def test_a_drafter_for_llama_8b_is_as_large_as_public_ones() -> None:
    """yuhuili/EAGLE3-LLaMA3.1-Instruct-8B has 0.4 billion parameters with its head."""
    assert 0.35e9 < drafter_parameters(target_of("m", LLAMA), work()) < 0.5e9


@pytest.mark.parametrize(
    ("model_type", "template"),
    [("llama", "llama3"), ("qwen3_moe", "qwen3-instruct"), ("kimi_k2", "kimi-k2-instruct"), ("new", "NAME")],
)
def test_the_template_of_a_kind_of_model(model_type: str, template: str) -> None:
    assert template_of(model_type) == template


def model(place: Path, **changes: Any) -> str:
    place.mkdir()
    (place / "config.json").write_text(json.dumps({**LLAMA, **changes}))
    return str(place)


@pytest.mark.parametrize("trainer", ["specforge", "speculators"])
def test_commands_are_what_a_shell_reads(tmp_path: Path, trainer: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = model(tmp_path / "a model")
    arguments = [
        "--target",
        target,
        "--with",
        trainer,
        "--rows",
        "5000",
        "--gpus",
        "2",
        "--tp",
        "2",
        "--out",
        str(tmp_path / "a run"),
    ]
    assert main.run(["drafter", "plan", *arguments, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    lines = [shlex.split(line) for step in plan["steps"] for line in step["lines"] if not line.startswith(("{", '"'))]
    assert (plan["schema"], plan["layers"]) == ("gpudiag.drafter-plan/1", [2, 16, 29])
    assert sum(target in word for words in lines for word in words) >= 5
    assert not [w for words in lines for w in words if w in ("model", "run")]
    if trainer == "speculators":
        (serve,) = [words for words in lines if words[:2] == ["vllm", "serve"]]
        ids = json.loads(serve[serve.index("--speculative-config") + 1])["draft_model_config"]["hf_config"]
        assert ids == {"eagle_aux_hidden_state_layer_ids": [2, 16, 29, 32]}
    else:
        assert any('"eagle_aux_hidden_state_layer_ids": [1, 15, 28]' in line for step in plan["steps"] for line in step["lines"])
    # Every command of gpudiag that it names is one.
    for words in (w for w in lines if w[:2] == ["gpudiag", "drafter"]):
        assert main.run(["drafter", words[2], "--help"]) == 0


def test_reasons_not_to_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = model(tmp_path / "m")
    assert main.run(["drafter", "plan", "--target", target, "--with", "specforge", "--rows", "5000", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "6,000,000 tokens are some 5,000 conversations" in out
    assert "the target takes 131,072" in " ".join(out.split())
    huge = ["--tokens", "1000000000000", "--length", "131072", "--out", str(tmp_path / "not" / "yet")]
    assert main.run(["drafter", "plan", "--target", target, "--with", "specforge", *huge]) == 0
    assert "are free at" in capsys.readouterr().out


def test_what_cannot_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = model(tmp_path / "m", hidden_size=None)
    assert main.run(["drafter", "plan", "--target", target, "--with", "specforge"]) == 2
    assert "--tokens or --rows" in capsys.readouterr().err
    assert main.run(["drafter", "plan", "--target", target, "--with", "specforge", "--rows", "1"]) == 4
    assert "has no hidden_size" in capsys.readouterr().err
    assert main.run(["drafter", "plan", "--target", "somebody/model", "--with", "specforge", "--rows", "1"]) == 2


@pytest.mark.parametrize(
    "changes", [{"hidden_size": 10**400}, {"hidden_size": -4}, {"vocab_size": 1 << 40}, {"num_hidden_layers": "32"}]
)
def test_sizes_that_no_model_has_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        target_of("here", {**LLAMA, **changes})


def test_a_type_that_is_no_text_is_not_taken() -> None:
    assert target_of("here", {**LLAMA, "dtype": ["float32"], "torch_dtype": "float16"}).dtype == "float16"
