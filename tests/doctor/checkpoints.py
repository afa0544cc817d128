"""Small models and EAGLE-3 drafters written as safetensors, with real tensors where their values matter."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

HIDDEN, LAYERS, VOCABULARY, DRAFTED = 8, 61, 100, 20
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
    (directory / "config.json").write_text(
        json.dumps({"architectures": [architecture], "model_type": "llama", **numbers, **config})
    )
    (directory / "tokenizer.json").write_text("{}")
    save(directory / "model.safetensors", {"model.embed_tokens.weight": plain(VOCABULARY, HIDDEN, value=3)})
    return directory


def weights() -> Tensors:
    return {
        "fc.weight": plain(HIDDEN, 3 * HIDDEN),
        "norm.weight": plain(HIDDEN),
        "midlayer.self_attn.q_proj.weight": plain(HIDDEN, 2 * HIDDEN),
        "lm_head.weight": plain(DRAFTED, HIDDEN),
        "d2t": integers([row - i for i, row in enumerate(ROWS)]),
        "t2d": truths(ROWS),
    }


def drafter(directory: Path, tensors: Tensors | None = None, **config: Any) -> Path:
    directory.mkdir(parents=True)
    numbers = {"hidden_size": HIDDEN, "vocab_size": VOCABULARY, "draft_vocab_size": DRAFTED, "num_hidden_layers": 1}
    (directory / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLMEagle3"], **numbers, **config}))
    save(directory / "model.safetensors", weights() if tensors is None else tensors)
    return directory
