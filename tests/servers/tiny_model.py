"""Makes a tiny Llama, its tokenizer and an EAGLE-3 drafter whose acceptance is known in advance. Runs in a server's interpreter.

    python tiny_model.py DIRECTORY

Every block of the target is the identity on the residual stream (its output projections are zero), so that the next token
depends on the last one alone, and greedy decoding walks one fixed cycle through the vocabulary: the head's row for the
successor of a token is that token's own embedding. The drafter sees a third of each of three auxiliary hidden states, which
are all that embedding, and its head is built the same way for the step after: what it drafts first is always the token
that the target takes, what it drafts then never is. With n drafts a round the acceptance length is 2 and the rate 1/n.

The cycle leaves out the special tokens; the chat template and all sizes are as small as both engines accept (vLLM 0.32,
SGLang 0.5.23: head size 64, no d2t where both vocabularies are the same). Without a network; needs torch, safetensors and
tokenizers.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|pad|>", "<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>")
PAD, BOS, EOS = range(3)
TEXTS = ("argparse", "asyncio.base_events", "typing", "subprocess", "inspect", "socket")
"""Modules of the standard library on whose source the tokenizer is trained: text that is everywhere."""
TEMPLATE = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}{{ '<|assistant|>' }}"

VOCABULARY, HIDDEN, INNER = 1024, 256, 512
LAYERS, HEADS, KV_HEADS, HEAD_SIZE = 8, 4, 2, 64


def make_tokenizer(folder: Path) -> int:
    """Train a byte-level BPE; returns the number of tokens, at most VOCABULARY."""
    specs = (importlib.util.find_spec(name) for name in TEXTS)
    lines = [line for spec in specs if spec and spec.origin for line in Path(spec.origin).read_text("utf-8").splitlines()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 4096,
            "pad_token": SPECIAL[PAD],
            "bos_token": SPECIAL[BOS],
            "eos_token": SPECIAL[EOS],
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    )
    return int(tokenizer.get_vocab_size())


def small(*shape: int) -> torch.Tensor:
    return torch.randn(*shape) * 0.02


def block(name: str, inputs: int = 1) -> dict[str, torch.Tensor]:
    """A decoder layer that adds nothing. `inputs`: how many hidden states stand side by side at its attention."""
    return {
        f"{name}.self_attn.q_proj.weight": small(HEADS * HEAD_SIZE, inputs * HIDDEN),
        f"{name}.self_attn.k_proj.weight": small(KV_HEADS * HEAD_SIZE, inputs * HIDDEN),
        f"{name}.self_attn.v_proj.weight": small(KV_HEADS * HEAD_SIZE, inputs * HIDDEN),
        f"{name}.self_attn.o_proj.weight": torch.zeros(HIDDEN, HEADS * HEAD_SIZE),
        f"{name}.mlp.gate_proj.weight": small(INNER, HIDDEN),
        f"{name}.mlp.up_proj.weight": small(INNER, HIDDEN),
        f"{name}.mlp.down_proj.weight": torch.zeros(HIDDEN, INNER),
        f"{name}.input_layernorm.weight": torch.ones(HIDDEN),
        f"{name}.post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def predecessors(tokens: int) -> torch.Tensor:
    """The token before each one in the cycle; special tokens, and rows that no token uses, follow themselves."""
    cycle = torch.arange(len(SPECIAL), tokens)
    cycle = cycle[torch.randperm(len(cycle))]
    before = torch.arange(VOCABULARY)
    before[cycle.roll(-1)] = cycle
    return before


def config(architecture: str, layers: int, **more: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        **more,
    }


def write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")


def write_weights(path: Path, weights: dict[str, torch.Tensor]) -> None:
    save_file({name: w.to(torch.bfloat16).contiguous() for name, w in weights.items()}, str(path), metadata={"format": "pt"})


def make(directory: Path) -> None:
    """Write DIRECTORY/target and DIRECTORY/eagle3."""
    torch.manual_seed(0)
    target, drafter = directory / "target", directory / "eagle3"
    for folder in (target, drafter):
        folder.mkdir(parents=True, exist_ok=True)
    before = predecessors(make_tokenizer(target))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(target / name, drafter / name)
    embeddings = torch.randn(VOCABULARY, HIDDEN)
    head, second = embeddings[before].clone(), embeddings[before[before]].clone()
    head[: len(SPECIAL)] = second[: len(SPECIAL)] = 0
    weights = {"model.embed_tokens.weight": embeddings, "model.norm.weight": torch.ones(HIDDEN), "lm_head.weight": head}
    for layer in range(LAYERS):
        weights |= block(f"model.layers.{layer}")
    write_weights(target / "model.safetensors", weights)
    write_json(target / "config.json", config("LlamaForCausalLM", LAYERS))
    write_json(target / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD})
    third = torch.eye(HIDDEN) / 3
    drafts = block("midlayer", inputs=2) | {
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "fc.weight": torch.cat([third, third, third], 1),
        "lm_head.weight": second,
    }
    write_weights(drafter / "model.safetensors", drafts)
    more = {"draft_vocab_size": VOCABULARY, "pretraining_tp": 1}
    write_json(drafter / "config.json", config("LlamaForCausalLMEagle3", 1, **more))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
