"""Small models and EAGLE-3 drafters written as safetensors, with real tensors where their values matter."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, VOCABULARY, DRAFTED, POSITIONS = 8, 61, 100, 20, 4096
Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]

ROWS = tuple(range(0, VOCABULARY, VOCABULARY // DRAFTED))
"""Target ids that the draft vocabulary has."""


def save(path: Path, tensors: Tensors) -> None:
    header: dict[str, Any] = {}
    place = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def plain(*shape: int, value: int = 0) -> tuple[str, tuple[int, ...], bytes]:
    """A BF16 tensor filled with one bit pattern."""
    count = 1
    for n in shape:
        count *= n
    return "BF16", shape, struct.pack("<H", value) * count


def integers(values: list[int]) -> tuple[str, tuple[int, ...], bytes]:
    return "I64", (len(values),), struct.pack(f"<{len(values)}q", *values)


def truths(ids: tuple[int, ...]) -> tuple[str, tuple[int, ...], bytes]:
    return "BOOL", (VOCABULARY,), bytes(int(i in ids) for i in range(VOCABULARY))


def target(directory: Path, architecture: str = "LlamaForCausalLM", **config: Any) -> Path:
    directory.mkdir(parents=True)
    numbers = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY, "torch_dtype": "bfloat16"}
    numbers |= {"max_position_embeddings": POSITIONS}
    (directory / "config.json").write_text(
        json.dumps({"architectures": [architecture], "model_type": "llama", **numbers, **config})
    )
    (directory / "tokenizer.json").write_text("{}")
    save(directory / "model.safetensors", {"model.embed_tokens.weight": plain(VOCABULARY, HIDDEN, value=3)})
    return directory


INNER, HEADS, HEAD = 12, 2, 4
SIZES = {"intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": HEAD}
IDS = "eagle_aux_hidden_state_layer_ids"


def weights(layer: str = "midlayer") -> Tensors:
    """All of a drafter of one layer, with grouped-query attention, under SGLang's name for it or vLLM's (layers.0)."""
    plain_shapes = {
        "self_attn.q_proj": (HEADS * HEAD, 2 * HIDDEN),
        "self_attn.k_proj": (HEAD, 2 * HIDDEN),
        "self_attn.v_proj": (HEAD, 2 * HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
        "hidden_norm": (HIDDEN,),
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
    }
    return {
        "fc.weight": plain(HIDDEN, 3 * HIDDEN),
        "norm.weight": plain(HIDDEN),
        **{f"{layer}.{name}.weight": plain(*shape) for name, shape in plain_shapes.items()},
        "lm_head.weight": plain(DRAFTED, HIDDEN),
        "d2t": integers([row - i for i, row in enumerate(ROWS)]),
        "t2d": truths(ROWS),
    }


def drafter(directory: Path, tensors: Tensors | None = None, **config: Any) -> Path:
    """A drafter in SGLang's form that fits `target`; a configuration key given as None is left out."""
    directory.mkdir(parents=True)
    numbers = {"hidden_size": HIDDEN, "vocab_size": VOCABULARY, "draft_vocab_size": DRAFTED, "num_hidden_layers": 1}
    raw = {"architectures": ["LlamaForCausalLMEagle3"], "max_position_embeddings": POSITIONS, **numbers, **SIZES, **config}
    (directory / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v is not None}))
    save(directory / "model.safetensors", weights() if tensors is None else tensors)
    return directory


def speculators(directory: Path, tensors: Tensors | None = None, **config: Any) -> Path:
    """A drafter in the form of speculators, trained on the inputs of layers 2, 30 and 58."""
    directory.mkdir(parents=True)
    layer = {"model_type": "llama", "hidden_size": HIDDEN, "vocab_size": VOCABULARY, "num_hidden_layers": 1, **SIZES}
    raw = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": DRAFTED,
        "norm_before_residual": True,
        IDS: [2, 30, 58],
        "transformer_layer_config": {**layer, "max_position_embeddings": POSITIONS},
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "somebody/target", "architectures": ["LlamaForCausalLM"]},
        },
        **config,
    }
    (directory / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v is not None}))
    save(directory / "model.safetensors", weights("layers.0") if tensors is None else tensors)
    return directory
