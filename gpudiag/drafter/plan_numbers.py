"""How much disk, memory and time it takes to train an EAGLE-3 drafter, by formulas that are shown with each number.

Bytes are exact: both trainers store, for each token, the captured layers and the last hidden state (SpecForge 0.2
`aux_hidden_state` and `hidden_state`, speculators 0.9 `hidden_states [T, 4, H]`). Times are arithmetic over the shares of a
GPU's peak that one public run reached (speculators' example on 5,000 conversations, Llama-3.1-8B, two H100: 143 s to extract,
327 s for five epochs), taken at 1,200 tokens a conversation, and given with a factor of two either way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from gpudiag.doctor.model_files import language_part, number, text
from gpudiag.model.training_plan import Estimate

BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
_EXTRACT_SHARE: Final = 0.33
_TRAIN_SHARE: Final = 0.40
_FACTOR: Final = 2.0
_MOST: Final = 1 << 24
_FAST_DISK: Final = 2e9
_SLOW_DISK: Final = 2e8
"""Bytes per second of a local NVMe disk, and of a network disk of a public cloud."""
_STATE_BYTES: Final = 16
"""A parameter in training: bf16 weight and gradient, fp32 master copy and Adam's two moments."""
_TOKEN_BYTES: Final = 16
"""Token id and loss mask, 8 bytes each."""


class Target(Struct, frozen=True, kw_only=True):
    """The numbers of a target's configuration that decide. `active` counts the parameters that one token goes through."""

    path: str
    hidden_size: int
    layers: int
    vocab_size: int
    active: int
    dtype: str
    model_type: str | None
    positions: int | None


class Work(Struct, frozen=True, kw_only=True):
    """How much is to be done, on what. `tflops` is the dense peak of one GPU in the type of the training."""

    tokens: int
    length: int
    gpus: int
    epochs: int
    ttt_steps: int
    draft_vocab_size: int
    tflops: float
    aux_layers: int = 3
    serve_rate: float | None = None
    """Tokens per second of answers that the server generates in all; None if not known."""
    extract_rate: float | None = None
    train_rate: float | None = None


def target_of(path: str, raw: Mapping[str, Any]) -> Target:
    """The target's numbers. Raises ValueError if its configuration lacks one that decides."""
    inner = language_part(raw)
    named = {n: number(inner.get(n)) for n in ("hidden_size", "num_hidden_layers", "vocab_size")}
    missing = [name for name, value in named.items() if not value or not 0 < value < _MOST]
    if missing:
        raise ValueError(f"{path}/config.json has no {', '.join(missing)} that a model can have")
    hidden, layers, vocabulary = (named[n] or 0 for n in ("hidden_size", "num_hidden_layers", "vocab_size"))
    dtype = next(
        (d for part in (inner, raw) for name in ("dtype", "torch_dtype") if (d := text(part.get(name))) in BYTES),
        "bfloat16",
    )
    return Target(
        path=path,
        hidden_size=hidden,
        layers=layers,
        vocab_size=vocabulary,
        active=layers * (_attention(inner, hidden) + _feed_forward(inner, hidden)) + vocabulary * hidden,
        dtype=str(dtype),
        model_type=str(inner.get("model_type") or raw.get("model_type") or "") or None,
        positions=number(inner.get("max_position_embeddings")),
    )


def _attention(inner: Mapping[str, Any], hidden: int) -> int:
    """Parameters of one layer's attention, latent or grouped."""
    heads = number(inner.get("num_attention_heads")) or 1
    latent = number(inner.get("kv_lora_rank"))
    if latent:
        rope, nope, value = (number(inner.get(n)) or 0 for n in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
        rank = number(inner.get("q_lora_rank"))
        query = hidden * rank + rank * heads * (nope + rope) if rank else hidden * heads * (nope + rope)
        return query + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden
    size = number(inner.get("head_dim")) or hidden // heads
    pairs = number(inner.get("num_key_value_heads")) or heads
    return hidden * size * (2 * heads + 2 * pairs)


def _feed_forward(inner: Mapping[str, Any], hidden: int) -> int:
    """Parameters of one layer's feed-forward part that a token goes through: all, or the experts chosen for it."""
    chosen = number(inner.get("num_experts_per_tok"))
    if chosen:
        width = number(inner.get("moe_intermediate_size")) or number(inner.get("intermediate_size")) or 0
        shared = number(inner.get("n_shared_experts")) or (1 if inner.get("shared_expert_intermediate_size") else 0)
        return 3 * hidden * width * (chosen + shared)
    return 3 * hidden * (number(inner.get("intermediate_size")) or 4 * hidden)


def drafter_parameters(target: Target, work: Work) -> int:
    """A drafter of one layer as both trainers make it: fc, attention over two states, feed-forward of 3.5 H, its own head."""
    hidden = target.hidden_size
    return (
        work.aux_layers * hidden * hidden + 6 * hidden * hidden + 3 * hidden * (7 * hidden // 2) + work.draft_vocab_size * hidden
    )


def token_bytes(target: Target, work: Work) -> int:
    """Bytes of hidden states a token."""
    return (work.aux_layers + 1) * target.hidden_size * BYTES[target.dtype] + _TOKEN_BYTES


def estimates(target: Target, work: Work) -> tuple[Estimate, ...]:
    """Every number of the plan, in the order in which it is met."""
    each, trained = token_bytes(target, work), drafter_parameters(target, work)
    states = each * work.tokens
    shape = f"({work.aux_layers} + 1) x {target.hidden_size} x {BYTES[target.dtype]} B + {_TOKEN_BYTES} B"
    memory = _memory(target, work, trained)
    logits = f"{work.length:,} x {work.draft_vocab_size:,} logits x 4 B x {work.ttt_steps} steps"
    exact = f"{trained:,} parameters x 2 B, one checkpoint without optimizer"
    return (
        *_generation(work),
        Estimate(name="hidden states", low=states, high=states, unit="bytes", formula=f"{work.tokens:,} tokens x ({shape})"),
        _extraction(target, work),
        Estimate(
            name="writing them",
            low=states / _FAST_DISK,
            high=states / _SLOW_DISK,
            unit="seconds",
            formula="at 2 GB/s (local NVMe) to 200 MB/s (a network disk): the slower of both steps is the time",
        ),
        _training(target, work, trained),
        Estimate(
            name="memory of one GPU",
            low=memory,
            high=2 * memory,
            unit="bytes",
            formula=f"{trained / 1e6:.0f}e6 parameters x {_STATE_BYTES} B + {logits} + embedding and head of the target",
        ),
        Estimate(name="drafter", low=2 * trained, high=2 * trained, unit="bytes", formula=exact),
    )


def _generation(work: Work) -> tuple[Estimate, ...]:
    if not work.serve_rate:
        return ()
    took = work.tokens / work.serve_rate
    formula = f"tokens / {work.serve_rate:g} per second of the server"
    return (Estimate(name="generation", low=took, high=took, unit="seconds", formula=formula),)


def _extraction(target: Target, work: Work) -> Estimate:
    """One forward pass over every token."""
    guess = 2 * target.active * work.tokens / (_peak(work) * _EXTRACT_SHARE)
    low, high = _seconds(guess, work.extract_rate, work.tokens)
    gpus = f"{work.gpus} GPUs x {work.tflops:g} TFLOPS x {_EXTRACT_SHARE}"
    formula = _how(work.extract_rate, f"2 x {target.active / 1e9:.1f}e9 active parameters x tokens / ({gpus})")
    return Estimate(name="extraction", low=low, high=high, unit="seconds", formula=formula)


def _training(target: Target, work: Work, trained: int) -> Estimate:
    """Forward and backward through the drafter for every step of training-time test, and once through the target's head."""
    passes = work.tokens * work.epochs
    flops = 6 * trained * work.ttt_steps * passes + 2 * target.vocab_size * target.hidden_size * passes
    low, high = _seconds(flops / (_peak(work) * _TRAIN_SHARE), work.train_rate, passes)
    token = f"6 x {trained / 1e6:.0f}e6 x {work.ttt_steps} steps + target's head"
    formula = _how(work.train_rate, f"{work.epochs} epochs x tokens x ({token}) / (peak x {_TRAIN_SHARE})")
    return Estimate(name="training", low=low, high=high, unit="seconds", formula=formula)


def _peak(work: Work) -> float:
    """Operations per second of all GPUs."""
    return work.gpus * work.tflops * 1e12


def _seconds(guess: float, rate: float | None, tokens: int) -> tuple[float, float]:
    """A measured rate is taken as it is."""
    return (tokens / rate, tokens / rate) if rate else (guess / _FACTOR, guess * _FACTOR)


def _how(rate: float | None, guess: str) -> str:
    return f"tokens / {rate:g} per second, as you measured" if rate else guess


def _memory(target: Target, work: Work, trained: int) -> float:
    held = 2 * 2 * target.vocab_size * target.hidden_size
    return trained * _STATE_BYTES + work.length * work.draft_vocab_size * 4 * work.ttt_steps + held
