"""Hidden states of a target model: its layers' inputs, as the engines capture them for an EAGLE-3 drafter."""

from __future__ import annotations

import json
import os

import torch
import torch.nn.functional as F  # noqa: N812
from eagle3.rotary import Rotary
from eagle3.tensors import BadFileError, Tensors

WRITTEN_OUT = {
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
}
"""Dense decoders with RMSNorm, SwiGLU and grouped attention. Others go through transformers."""

_LOGIT_ROWS = 4096
_NARROW = 512
"""Width below which threads only wait for each other: on two busy cores two of them took ten times as long as one."""


def read_config(directory):
    """config.json as (whole, the language model's part)."""
    try:
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
            whole = json.load(file)
    except (OSError, ValueError) as error:
        raise BadFileError(f"{directory}/config.json: {error}") from None
    if not isinstance(whole, dict):
        raise BadFileError(f"{directory}/config.json holds no object")
    inner = whole.get("text_config") or whole.get("language_config") or whole
    return whole, inner


def pick_device(name):
    """The device that a request names; 'auto' is a GPU if there is one."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def open_target(directory, device, dtype):
    """The target in `directory`: written out here where possible, else by transformers. `dtype` None: as it is stored."""
    whole, inner = read_config(directory)
    if inner.get("hidden_size", 0) < _NARROW and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    architecture = (whole.get("architectures") or [""])[0]
    if architecture in WRITTEN_OUT and not whole.get("quantization_config"):
        try:
            return Written(directory, device, dtype)
        except ValueError:
            # A kind of rope that is not written out.
            pass
    return FromTransformers(directory, architecture, device, dtype)


class Written:
    """A dense decoder in plain PyTorch. No cache: sequences are short and every position is wanted."""

    def __init__(self, directory, device, dtype):
        _, c = read_config(directory)
        self.width, self.layers, self.vocabulary = c["hidden_size"], c["num_hidden_layers"], c["vocab_size"]
        self.heads = c["num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads") or self.heads
        self.head_dim = c.get("head_dim") or self.width // self.heads
        self.eps = c.get("rms_norm_eps", 1e-6)
        window = c.get("sliding_window") if c.get("use_sliding_window", c.get("model_type") == "mistral") else None
        self.window = window or None
        self.rotary = Rotary(c, self.head_dim, device)
        self.device = device
        tensors = Tensors(directory)
        self.dtype = dtype or tensors.load("model.norm.weight").dtype

        def get(name):
            return tensors.load(name).to(device=device, dtype=self.dtype)

        self.embedding = get("model.embed_tokens.weight")
        self.norm = get("model.norm.weight")
        self.head = get("lm_head.weight") if "lm_head.weight" in tensors else self.embedding
        self.blocks = []
        for index in range(self.layers):
            start = f"model.layers.{index}."
            self.blocks.append({n[len(start) :]: get(n) for n in tensors.names() if n.startswith(start)})

    @torch.no_grad()
    def states(self, ids, wanted):
        """Inputs of the layers in `wanted`, {index: [B, T, H]}, and the normed output; index `layers` is before the norm."""
        x, kept = F.embedding(ids, self.embedding), {}
        positions = torch.arange(ids.shape[1], device=ids.device)
        for index, weights in enumerate(self.blocks):
            if index in wanted:
                kept[index] = x
            x = self._block(x, weights, positions)
        if self.layers in wanted:
            kept[self.layers] = x
        return kept, self._norm(x, self.norm)

    def logits(self, normed):
        return normed @ self.head.T

    def _norm(self, x, weight):
        return rms(x, weight, self.eps)

    def _block(self, x, w, positions):
        y = self._norm(x, w["input_layernorm.weight"])
        batch, length, _ = y.shape

        def heads(name, count):
            out = F.linear(y, w[f"self_attn.{name}_proj.weight"], w.get(f"self_attn.{name}_proj.bias"))
            out = out.view(batch, length, count, self.head_dim)
            norm = w.get(f"self_attn.{name}_norm.weight")
            return (out if norm is None else self._norm(out, norm)).transpose(1, 2)

        q, k, v = self.rotary(heads("q", self.heads), positions), heads("k", self.kv_heads), heads("v", self.kv_heads)
        k = self.rotary(k, positions)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mask = None
        if self.window and length > self.window:
            apart = positions[:, None] - positions[None, :]
            mask = (apart >= 0) & (apart < self.window)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        o = o.transpose(1, 2).reshape(batch, length, -1)
        x = x + F.linear(o, w["self_attn.o_proj.weight"], w.get("self_attn.o_proj.bias"))
        y = self._norm(x, w["post_attention_layernorm.weight"])
        gate = F.silu(F.linear(y, w["mlp.gate_proj.weight"], w.get("mlp.gate_proj.bias")))
        return x + F.linear(
            gate * F.linear(y, w["mlp.up_proj.weight"], w.get("mlp.up_proj.bias")),
            w["mlp.down_proj.weight"],
            w.get("mlp.down_proj.bias"),
        )


class FromTransformers:
    """Any architecture that the interpreter's transformers can load."""

    def __init__(self, directory, architecture, device, dtype):
        try:
            from transformers import AutoModelForCausalLM
        except ImportError:
            known = ", ".join(sorted(WRITTEN_OUT))
            raise BadFileError(
                f"{architecture or directory} needs transformers in this interpreter; without it only {known} can be read"
            ) from None
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype or "auto", local_files_only=True)
        self.model = model.to(device).eval()
        text = self.model.config.get_text_config()
        self.width, self.layers, self.vocabulary = text.hidden_size, text.num_hidden_layers, text.vocab_size
        self.embedding = self.model.get_input_embeddings().weight.detach()
        self.dtype, self.device = self.embedding.dtype, device

    @torch.no_grad()
    def states(self, ids, wanted):
        out = self.model(ids, output_hidden_states=True, use_cache=False, logits_to_keep=1)
        states = out.hidden_states
        # Its last entry is after the final norm; what stands before the norm is not given out.
        if self.layers in wanted:
            raise BadFileError("transformers gives no hidden state before the final norm; choose layers below the last")
        return {i: states[i] for i in wanted}, states[-1]

    def logits(self, normed):
        return self.model.get_output_embeddings()(normed)


def argmax(target, normed):
    """The target's own choice after each position, [B, T], in pieces that fit into memory."""
    flat = normed.reshape(-1, normed.shape[-1])
    picked = [target.logits(piece).argmax(-1) for piece in flat.split(_LOGIT_ROWS)]
    return torch.cat(picked).view(normed.shape[:-1])


def rms(x, weight, eps):
    y = x.to(torch.float32)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return (y.to(x.dtype)) * weight
