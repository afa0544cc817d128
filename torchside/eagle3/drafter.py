"""An EAGLE-3 drafter: its file in any of the three dialects, and its forward as both engines compute it.

SGLang 0.5.23 srt/models/llama_eagle3.py and vLLM 0.32.0 model_executor/models/llama_eagle3.py are the reference. Names of
weights are those of vLLM (layers.0.*); 'midlayer.' of SafeAILab, SGLang and SpecForge is the same layer.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812
from eagle3.rotary import Rotary
from eagle3.target import read_config, rms
from eagle3.tensors import BadFileError, Tensors

_LEGACY = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}
_LAYER = "layers.0."


def read_drafter_config(directory):
    """(whole, the layer's part, eagle_config): speculators nests the layer, SGLang nests the flags."""
    whole, _ = read_config(directory)
    layer = whole.get("transformer_layer_config")
    eagle = whole.get("eagle_config")
    return whole, layer if isinstance(layer, dict) else whole, eagle if isinstance(eagle, dict) else {}


def canonical(name):
    """The name of a weight in the form used here: any prefix 'model.' and every 'midlayer.' gone."""
    name = name.removeprefix("model.").replace("midlayer.", _LAYER)
    head, _, tail = name.partition(".")
    return f"{_LEGACY[head]}.{tail}" if head in _LEGACY else name


class Drafter:
    """Weights by name, and the switches that the configuration sets. Replays change a copy of it, training its weights."""

    def __init__(self, weights, layer, *, eps, heads, kv_heads, head_dim, target_width, device):
        self.weights = weights
        self.layer_config = layer
        self.eps, self.heads, self.kv_heads, self.head_dim = eps, heads, kv_heads, head_dim
        self.target_width = target_width
        self.rotary = Rotary(layer, head_dim, device)
        self.device = device
        self.post_norm_feedback = False
        self.norm_before_residual = False
        self.logit_scale = 1.0
        self.skipped = frozenset()
        """Norms that are left out; an integration that forgets one does that."""

    @property
    def captured(self):
        """How many layers of the target it reads."""
        return self.weights["fc.weight"].shape[1] // self.target_width

    @property
    def width(self):
        return self.weights["fc.weight"].shape[0]

    @property
    def vocabulary(self):
        return self.weights["lm_head.weight"].shape[0]

    def copy(self):
        """A copy whose weights and switches can be replaced one by one; the tensors are shared."""
        other = copy.copy(self)
        other.weights = dict(self.weights)
        return other

    def start(self, captured):
        """The hidden states that the first step reads, [..., H], from the target's, [..., n * H_t]."""
        if "input_norm.weight" in self.weights:
            captured = self.norm(captured, "input_norm")
        if "fc_norm.0.weight" in self.weights:
            parts = captured.chunk(self.captured, -1)
            captured = torch.cat([self.norm(part, f"fc_norm.{i}") for i, part in enumerate(parts)], -1)
        return captured @ self.weights["fc.weight"].T

    def project(self, embedded, hidden, positions):
        """Queries, keys and values [..., heads, D] of one step, and the residual. `positions` broadcast to the leading shape."""
        normed = self.norm(hidden, _LAYER + "hidden_norm")
        residual = normed if self.norm_before_residual else hidden
        x = torch.cat((self.norm(embedded, _LAYER + "input_layernorm"), normed), -1)

        def heads(name, count):
            w = self.weights
            out = F.linear(x, w[f"{_LAYER}self_attn.{name}_proj.weight"], w.get(f"{_LAYER}self_attn.{name}_proj.bias"))
            out = out.view(*x.shape[:-1], count, self.head_dim)
            return self.norm(out, f"{_LAYER}self_attn.{name}_norm") if f"{_LAYER}self_attn.{name}_norm.weight" in w else out

        places = positions[..., None]
        q, k = self.rotary(heads("q", self.heads), places), self.rotary(heads("k", self.kv_heads), places)
        v = heads("v", self.kv_heads)
        group = self.heads // self.kv_heads
        return q, k.repeat_interleave(group, -2), v.repeat_interleave(group, -2), residual

    def finish(self, attended, residual):
        """After attention, [..., heads, D]: (what the next step reads, logits over the draft vocabulary)."""
        w = self.weights
        h = residual + F.linear(
            attended.flatten(-2), w[_LAYER + "self_attn.o_proj.weight"], w.get(_LAYER + "self_attn.o_proj.bias")
        )
        y = self.norm(h, _LAYER + "post_attention_layernorm")
        gate = F.silu(F.linear(y, w[_LAYER + "mlp.gate_proj.weight"]))
        h = h + F.linear(gate * F.linear(y, w[_LAYER + "mlp.up_proj.weight"]), w[_LAYER + "mlp.down_proj.weight"])
        normed = self.norm(h, "norm")
        return (normed if self.post_norm_feedback else h), (normed @ w["lm_head.weight"].T) * self.logit_scale

    def norm(self, x, name):
        return x if name in self.skipped else rms(x, self.weights[f"{name}.weight"], self.eps)

    def target_ids(self, draft_ids):
        """The target's id of each draft id: d2t is an offset. A drafter with the target's vocabulary has none."""
        d2t = self.weights.get("d2t")
        return draft_ids if d2t is None else draft_ids + d2t[draft_ids]


def open_drafter(directory, target, device):
    """The drafter in `directory`, in the type of its target, as whoever trained it meant it. Raises BadFileError."""
    whole, layer, eagle = read_drafter_config(directory)
    tensors = Tensors(directory)
    names = {canonical(name): name for name in tensors.names()}
    _require(directory, names, layer)
    floating = target.dtype

    def get(name):
        tensor = tensors.load(names[name])
        return tensor.to(device=device, dtype=floating if tensor.is_floating_point() else tensor.dtype)

    weights = {name: get(name) for name in names if name != "t2d"}
    if "d2t" in weights:
        weights["d2t"] = weights["d2t"].long()
    heads = layer["num_attention_heads"]
    width = weights["fc.weight"].shape[0]
    drafter = Drafter(
        weights,
        layer,
        eps=layer.get("rms_norm_eps", 1e-6),
        heads=heads,
        kv_heads=layer.get("num_key_value_heads") or heads,
        head_dim=layer.get("head_dim") or width // heads,
        target_width=whole.get("target_hidden_size") or eagle.get("target_hidden_size") or target.width,
        device=device,
    )
    speculators = "speculators_config" in whole or "speculators_model_type" in whole
    drafter.post_norm_feedback = bool(_flag(whole, eagle, "norm_output", False))
    # vLLM reads a speculators file without the flag as if it were set (transformers_utils/configs/speculators/algos.py).
    drafter.norm_before_residual = bool(_flag(whole, eagle, "norm_before_residual", speculators))
    drafter.logit_scale = float(whole.get("logit_scale") or 1.0)
    return drafter


def _require(directory, names, layer):
    if "fc.weight" not in names or _LAYER + "self_attn.q_proj.weight" not in names:
        if any("kv_a_proj" in name or "q_a_proj" in name for name in names):
            raise BadFileError(f"{directory} is a drafter with latent attention (MLA), which the replay does not compute")
        raise BadFileError(f"{directory} has no fc.weight or no decoder layer: no EAGLE-3 drafter")
    if layer.get("num_hidden_layers", 1) != 1:
        raise BadFileError(f"{directory} has {layer['num_hidden_layers']} layers; a drafter of one layer can be replayed")
    wanted = ("norm.weight", _LAYER + "hidden_norm.weight", _LAYER + "input_layernorm.weight", "lm_head.weight")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise BadFileError(f"{directory} lacks {', '.join(missing)}")


def _flag(whole, eagle, name, default):
    value = whole.get(name, eagle.get(name))
    return default if value is None else value
