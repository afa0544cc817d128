"""A target of eight narrow layers with random weights, drafters for it, and texts: written without torch."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpudiag.assets import asset
from gpudiag.drafter.train import Plan
from gpudiag.model.replay import Text

VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, INNER = 24, 16, 8, 4, 2, 4, 24
IDS = "eagle_aux_hidden_state_layer_ids"
SPECULATE = Path(__file__).parent / "programs" / "speculate.py"

SHAPE: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "hidden_act": "silu",
}

Weights = dict[str, tuple[tuple[int, ...], list[float]]]


def write_tensors(path: Path, floats: Weights, integers: Mapping[str, Sequence[int]] | None = None) -> None:
    """A safetensors file of float32 and int64 tensors."""
    table: dict[str, Any] = {}
    body = bytearray()
    for name, (shape, values) in floats.items():
        data = struct.pack(f"<{len(values)}f", *values)
        table[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    for name, numbers in (integers or {}).items():
        data = struct.pack(f"<{len(numbers)}q", *numbers)
        table[name] = {"dtype": "I64", "shape": [len(numbers)], "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


def plan(target: Path, out: Path) -> Plan:
    """A training of seconds, of a drafter in each dialect."""
    return Plan(
        target=str(target),
        out=out,
        dialects=("vllm", "sglang", "speculators"),
        steps=120,
        batch=8,
        rate=1e-2,
        context=64,
        vocabulary=16,
        device="cpu",
        save_every_s=3600,
    )


def target(place: Path, *, seed: int = 3) -> Path:
    """A LlamaForCausalLM whose next token depends on the last ones strongly enough to be learnt."""
    draw = random.Random(seed)  # noqa: S311  no secret

    def normal(*shape: int, spread: float | None = None) -> tuple[tuple[int, ...], list[float]]:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        size = spread if spread is not None else shape[-1] ** -0.5
        return shape, [draw.gauss(0, size) for _ in range(count)]

    def around_one() -> tuple[tuple[int, ...], list[float]]:
        return (WIDTH,), [1 + draw.gauss(0, 0.3) for _ in range(WIDTH)]

    weights: Weights = {"model.embed_tokens.weight": normal(VOCABULARY, WIDTH, spread=1.0)}
    for layer in range(LAYERS):
        start = f"model.layers.{layer}."
        weights |= {
            f"{start}input_layernorm.weight": around_one(),
            f"{start}post_attention_layernorm.weight": around_one(),
            f"{start}self_attn.q_proj.weight": normal(HEADS * HEAD, WIDTH),
            f"{start}self_attn.k_proj.weight": normal(KV_HEADS * HEAD, WIDTH),
            f"{start}self_attn.v_proj.weight": normal(KV_HEADS * HEAD, WIDTH),
            f"{start}self_attn.o_proj.weight": normal(WIDTH, HEADS * HEAD),
            f"{start}mlp.gate_proj.weight": normal(INNER, WIDTH),
            f"{start}mlp.up_proj.weight": normal(INNER, WIDTH),
            f"{start}mlp.down_proj.weight": normal(WIDTH, INNER),
        }
    weights |= {"model.norm.weight": around_one(), "lm_head.weight": normal(VOCABULARY, WIDTH, spread=1.0)}
    place.mkdir(parents=True)
    write_tensors(place / "model.safetensors", weights)
    config = {
        **SHAPE,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }
    (place / "config.json").write_text(json.dumps(config))
    return place


def changed(draft: Path, place: Path, tensors: Mapping[str, Any] | None = None, **config: Any) -> Path:
    """A copy of a drafter with other flags; `tensors` are added or replace those that are there."""
    place.mkdir(parents=True)
    kept = json.loads((draft / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(kept | config))
    (place / "model.safetensors").write_bytes((draft / "model.safetensors").read_bytes())
    if tensors:
        write_tensors(place / "more.safetensors", dict(tensors))
    return place


def prompts(count: int, *, seed: int = 1) -> list[list[int]]:
    draw = random.Random(seed)  # noqa: S311  no secret
    return [[draw.randrange(VOCABULARY) for _ in range(draw.randint(3, 8))] for _ in range(count)]


def speculated(
    python: str,
    scratch: Path,
    target_dir: Path,
    draft: Path | None,
    *,
    count: int,
    length: int,
    steps: int = 3,
    topk: int = 1,
    nodes: int = 3,
    seed: int = 1,
    fault: Mapping[str, Any] | None = None,
) -> tuple[Text, ...]:
    """Texts of a real loop of drafting and verifying; without a drafter only the target's own."""
    request = {
        "target": str(target_dir),
        "draft": str(draft) if draft else None,
        "prompts": prompts(count, seed=seed),
        "length": length,
        "steps": steps,
        "topk": topk,
        "nodes": nodes,
        "fault": dict(fault or {}),
    }
    file = scratch / f"request-{seed}-{len(list(scratch.iterdir()))}.json"
    file.write_text(json.dumps(request))
    place = asset("torchside", "eagle3/tensors.py").parent.parent
    ended = subprocess.run([python, "-B", str(SPECULATE), str(place), str(file)], stdout=subprocess.PIPE, check=True, timeout=110)
    return msgspec.json.decode(ended.stdout, type=tuple[Text, ...])
