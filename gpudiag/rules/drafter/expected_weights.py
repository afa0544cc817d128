"""Which weights the class that loads a drafter has, of which shape, and under which names of a file it finds them.

From the classes as they are in sglang 0.5.23 (srt/models/llama_eagle3.py, kimi_k25_eagle3.py) and in vllm 0.32.0 and 0.33.0
(model_executor/models/llama_eagle3.py, qwen3_eagle3.py, deepseek_eagle3.py). Names here are those of the file, without
`model.`, with `layers.0.` for `midlayer.`.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.facts import ServedBy
from gpudiag.model.modelfiles import DraftConfig, Drafter

Family = Literal["llama", "qwen3", "latent"]
Shape = tuple[int | None, ...]
"""None is a size that the configuration does not give."""

SKIPPED: Final = ""
"""Where a name lands that the engine leaves out on purpose."""

_LEGACY: Final = {"midlayer": "layers.0", "aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}
_UNUSED: Final = re.compile(r"rotary_emb\.(?:inv_freq|cos_cached|sin_cached)")


class Slot(Struct, frozen=True):
    """A weight of the class. `needed` is False where the engine shares the target's, or has its own value, without it."""

    shape: Shape
    needed: bool = True


def family(drafter: Drafter) -> Family:
    """Which of the drafters' classes it is."""
    names = " ".join(drafter.architectures).lower()
    if "deepseek" in names or drafter.config.shape.kv_lora_rank is not None:
        return "latent"
    return "qwen3" if "qwen3" in names and "vl" not in names and drafter.dialect != "sglang" else "llama"


def slots(drafter: Drafter, engine: ServedBy, target_hidden: int | None) -> dict[str, Slot]:
    """Every weight of the class by name."""
    config = drafter.config
    hidden, count = config.hidden_size, aux_count(config, engine)
    wide = config.target_hidden_size or (target_hidden if config.speculators else None) or hidden
    joined = wide * count if wide else None
    found = {
        "fc.weight": Slot((hidden, joined)),
        "norm.weight": Slot((hidden,)),
        "embed_tokens.weight": Slot((config.vocab_size, hidden), needed=False),
        "lm_head.weight": Slot((config.draft_vocab_size or config.vocab_size, hidden), needed=_needs_head(config, engine)),
    }
    if config.fc_bias and engine == "sglang":
        found["fc.bias"] = Slot((hidden,))
    if config.fc_norm:
        found |= {f"fc_norm.{i}.weight": Slot((wide,)) for i in range(count)}
    if config.norm_before_fc:
        found["input_norm.weight"] = Slot((joined,))
    kind = family(drafter)
    for i in range(config.layers if config.layers is not None else 1):
        layer = _latent(config) if kind == "latent" else _plain(config, kind, engine, 2 if i == 0 else 1)
        found |= {f"layers.{i}.{name}": slot for name, slot in {**layer, **_rest(config, engine)}.items()}
    return found


def aux_count(config: DraftConfig, engine: ServedBy) -> int:
    """How many layers' states the class joins: num_aux_hidden_states, else the nested ids, else 3.

    SGLang's class for latent attention also counts ids at the top level.
    """
    if config.aux_count is not None:
        return config.aux_count
    ids = config.nested_ids or (config.top_ids if engine == "sglang" and config.shape.kv_lora_rank is not None else None)
    return len(ids) if ids else 3


def _needs_head(config: DraftConfig, engine: ServedBy) -> bool:
    if engine == "sglang":
        return config.draft_vocab_size is not None and not config.tied
    return config.draft_vocab_size not in (None, config.vocab_size)


def _plain(config: DraftConfig, kind: Family, engine: ServedBy, inputs: int) -> dict[str, Slot]:
    """Grouped-query attention; its first layer takes the embedding and the hidden state side by side."""
    shape, hidden = config.shape, config.hidden_size
    heads = shape.heads
    size = shape.head_dim or (hidden // heads if hidden and heads else None)
    queries = heads * size if heads and size else None
    keys = (shape.kv_heads or heads or 0) * size if heads and size else None
    wide = hidden * inputs if hidden else None
    found = {
        "self_attn.q_proj.weight": Slot((queries, wide)),
        "self_attn.k_proj.weight": Slot((keys, wide)),
        "self_attn.v_proj.weight": Slot((keys, wide)),
        "self_attn.o_proj.weight": Slot((hidden, queries)),
    }
    if kind == "qwen3":
        found |= {f"self_attn.{n}_norm.weight": Slot((size,)) for n in "qk"}
    if config.attention_bias and engine == "vllm":
        sizes = {"q": queries, "k": keys, "v": keys}
        found |= {f"self_attn.{n}_proj.bias": Slot((rows,)) for n, rows in sizes.items()}
        found["self_attn.o_proj.bias"] = Slot((hidden,), needed=False)
    return found


def _latent(config: DraftConfig) -> dict[str, Slot]:
    """Multi-head latent attention."""
    shape, hidden = config.shape, config.hidden_size
    heads, rope, nope, value = shape.heads, shape.qk_rope_head_dim, shape.qk_nope_head_dim, shape.v_head_dim
    rank, latent = shape.q_lora_rank, shape.kv_lora_rank
    wide = 2 * hidden if hidden else None
    query = heads * (nope + rope) if heads and nope and rope else None
    pair = heads * (nope + value) if heads and nope and value else None
    return {
        "self_attn.q_a_proj.weight": Slot((rank, wide)),
        "self_attn.q_a_layernorm.weight": Slot((rank,)),
        "self_attn.q_b_proj.weight": Slot((query, rank)),
        "self_attn.kv_a_proj_with_mqa.weight": Slot((latent + rope if latent and rope else None, wide)),
        "self_attn.kv_a_layernorm.weight": Slot((latent,)),
        "self_attn.kv_b_proj.weight": Slot((pair, latent)),
        "self_attn.o_proj.weight": Slot((hidden, heads * value if heads and value else None)),
    }


def _rest(config: DraftConfig, engine: ServedBy) -> dict[str, Slot]:
    hidden, inner = config.hidden_size, config.shape.intermediate_size
    found = {
        "mlp.gate_proj.weight": Slot((inner, hidden)),
        "mlp.up_proj.weight": Slot((inner, hidden)),
        "mlp.down_proj.weight": Slot((hidden, inner)),
        "input_layernorm.weight": Slot((hidden,)),
        "hidden_norm.weight": Slot((hidden,)),
        "post_attention_layernorm.weight": Slot((hidden,)),
    }
    if config.mlp_bias and engine == "vllm":
        found |= {f"mlp.{n}_proj.bias": Slot((rows,)) for n, rows in (("gate", inner), ("up", inner), ("down", hidden))}
    return found


def landing(name: str, engine: ServedBy, kind: Family) -> str:
    """The name under which the engine looks for a place for this weight, SKIPPED for one that it leaves out."""
    if "t2d" in name or "mask_hidden" in name or _UNUSED.search(name):
        return SKIPPED
    if engine == "vllm":
        return _in_vllm(name)
    if kind == "latent":
        bare = name.removesuffix(".d2t") if name.endswith(".d2t") else name
        return SKIPPED if name == "d2t" or bare != name else re.sub(r"^midlayer\.", "layers.0.", name)
    if "d2t" in name:
        return SKIPPED
    for old, new in _LEGACY.items():
        name = name.replace(old, new)
    # It tries the name as it is and with `model.` before it; lm_head alone lies outside `model`.
    return name if name.startswith("model.lm_head") else name.removeprefix("model.")


def _in_vllm(name: str) -> str:
    """VLLM puts `model.` before all but lm_head, whatever the name begins with."""
    if "d2t" in name:
        return SKIPPED if name == "d2t" else name
    return name.replace("midlayer.", "layers.0.")
