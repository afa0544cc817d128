"""What a drafter's files say: its configuration in the three dialects, its vocabulary map, its embedding."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from gpudiag.doctor.model_files import number, object_in, tensor_bytes, tensors, text, texts
from gpudiag.doctor.special_tokens import special_tokens
from gpudiag.model.modelfiles import DraftConfig, Drafter, DraftShape, EmbeddingCheck, SpecialToken, Tensor, VocabMap

_MAX_ENTRIES: Final = 1 << 22
_ROWS: Final = 64
_ROW_BYTES: Final = 1 << 20
_EMBEDDINGS: Final = ("embed_tokens.weight", "model.embed_tokens.weight")
_FLAGS: Final = ("norm_output", "norm_before_residual", "fc_norm", "use_aux_norm", "norm_before_fc")
_LATENT: Final = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_TARGET_EMBEDDINGS: Final = (
    "model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "embed_tokens.weight",
)


def drafter(directory: Path | str, target: Path | str | None) -> Drafter:
    """A drafter directory; with its target, embeddings are compared. Raises OSError or ValueError."""
    place = Path(directory)
    raw = object_in(place / "config.json")
    found = tuple(tensors(place))
    config = draft_config(raw)
    return Drafter(
        path=str(place),
        architectures=texts(raw.get("architectures")),
        config=config,
        tensors=found,
        vocab_map=_vocab_map(place, found, config),
        embedding=_embedding(place, found, Path(target)) if target else None,
        weight_bytes=sum(path.stat().st_size for path in place.glob("*.safetensors")),
        outside=_outside(place, found, Path(target)) if target else (),
    )


def draft_config(raw: Mapping[str, Any]) -> DraftConfig:
    """The fields of a configuration as SGLang, vLLM or speculators writes it (eagle_config, transformer_layer_config)."""
    eagle = _table(raw, "eagle_config")
    layer = _table(raw, "transformer_layer_config") or raw
    verifier = _table(_table(raw, "speculators_config"), "verifier")

    def flag(*names: str) -> bool | None:
        found = [v for name in names for v in (raw.get(name, layer.get(name)), eagle.get(name)) if isinstance(v, bool)]
        return found[0] if found else None

    return DraftConfig(
        hidden_size=number(layer.get("hidden_size")),
        target_hidden_size=number(raw.get("target_hidden_size", eagle.get("target_hidden_size"))),
        vocab_size=number(layer.get("vocab_size")),
        draft_vocab_size=number(raw.get("draft_vocab_size", eagle.get("draft_vocab_size"))),
        layers=number(layer.get("num_hidden_layers")),
        nested_ids=_ids(eagle.get("eagle_aux_hidden_state_layer_ids")),
        top_ids=_ids(raw.get("eagle_aux_hidden_state_layer_ids")),
        norm_output=flag("norm_output"),
        norm_before_residual=flag("norm_before_residual"),
        max_positions=number(layer.get("max_position_embeddings")),
        speculators="speculators_config" in raw or "speculators_model_type" in raw,
        shape=_shape(layer),
        aux_count=number(raw.get("num_aux_hidden_states")),
        fc_norm=flag("fc_norm", "use_aux_norm"),
        norm_before_fc=flag("norm_before_fc"),
        tied=flag("tie_word_embeddings"),
        attention_bias=flag("attention_bias"),
        mlp_bias=flag("mlp_bias"),
        fc_bias=flag("bias"),
        nested_flags=tuple(n for n in _FLAGS if isinstance(eagle.get(n), bool) and not isinstance(raw.get(n), bool)),
        dtype=text(layer.get("torch_dtype") or layer.get("dtype") or raw.get("torch_dtype") or raw.get("dtype")),
        layer_type=text(layer.get("model_type")),
        quantization=text(_table(raw, "quantization_config").get("quant_method")),
        verifier=text(verifier.get("name_or_path")),
        verifier_architectures=texts(verifier.get("architectures")),
    )


def _shape(layer: Mapping[str, Any]) -> DraftShape:
    return DraftShape(
        intermediate_size=number(layer.get("intermediate_size")),
        heads=number(layer.get("num_attention_heads")),
        kv_heads=number(layer.get("num_key_value_heads")),
        **{n: number(layer.get(n)) for n in ("head_dim", *_LATENT)},
    )


def _table(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _ids(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and value and all(isinstance(n, int) and not isinstance(n, bool) for n in value):
        return tuple(value)
    return None


def _named(found: tuple[Tensor, ...], names: tuple[str, ...]) -> Tensor | None:
    by_name = {t.name: t for t in found}
    return next((by_name[n] for n in names if n in by_name), None)


def _ending(found: tuple[Tensor, ...], name: str) -> Tensor | None:
    """A tensor of this name, whatever an export put before it."""
    return next((t for t in found if t.name == name or t.name.endswith(f".{name}")), None)


def _outside(place: Path, found: tuple[Tensor, ...], target: Path) -> tuple[SpecialToken, ...]:
    """What the target emits by its own rules and the draft vocabulary lacks, by t2d; nothing without one."""
    known = _t2d(place, _ending(found, "t2d"))
    if known is None:
        return ()
    return tuple(one for one in special_tokens(target) if not (0 <= one.id < len(known) and known[one.id] == 1))


def draft_vocabulary(place: Path) -> frozenset[int] | None:
    """Target ids that a drafter can draft, by d2t; None if it has no map. Raises OSError or ValueError."""
    offsets = _offsets(place, _ending(tuple(tensors(place)), "d2t"))
    return None if offsets is None else frozenset(index + offset for index, offset in enumerate(offsets))


def _offsets(place: Path, d2t: Tensor | None) -> tuple[int, ...] | None:
    if d2t is None or d2t.dtype not in ("I64", "I32") or len(d2t.shape) != 1 or not 0 < d2t.shape[0] <= _MAX_ENTRIES:
        return None
    count = d2t.shape[0]
    width, code = (8, "q") if d2t.dtype == "I64" else (4, "i")
    return struct.unpack(f"<{count}{code}", tensor_bytes(place, d2t, 0, count * width))


def _vocab_map(place: Path, found: tuple[Tensor, ...], config: DraftConfig) -> VocabMap | None:
    """Judge d2t as the offsets that both engines read it as: target id = draft id + d2t[draft id]."""
    offsets = _offsets(place, _ending(found, "d2t"))
    if offsets is None:
        return None
    count = len(offsets)
    t2d = _ending(found, "t2d")
    vocabulary = config.vocab_size or (t2d.shape[0] if t2d is not None and len(t2d.shape) == 1 else 0)
    ids = [index + offset for index, offset in enumerate(offsets)]
    outside = sum(not 0 <= one < vocabulary for one in ids) if vocabulary else 0
    disorder = sum(b <= a for a, b in pairwise(ids))
    known = _t2d(place, t2d)
    # Target ids rise strictly by themselves; read as offsets they leave the vocabulary, or name ids that t2d does not have.
    rising = count > 1 and all(a < b for a, b in pairwise(offsets))
    absolute = rising and (_agree(offsets, known) > _agree(ids, known) if known is not None else outside > 0)
    return VocabMap(
        d2t_entries=count,
        looks_absolute=absolute,
        out_of_range=outside,
        not_increasing=disorder,
        t2d_disagreements=None if known is None else count - _agree(ids, known) + abs(sum(known) - count),
    )


def _t2d(place: Path, t2d: Tensor | None) -> bytes | None:
    """One byte a target id, 1 if the draft vocabulary has it; None without a tensor of truth values."""
    if t2d is None or t2d.dtype != "BOOL" or len(t2d.shape) != 1 or t2d.shape[0] > _MAX_ENTRIES:
        return None
    return tensor_bytes(place, t2d, 0, t2d.shape[0])


def _agree(ids: Iterable[int], known: bytes) -> int:
    """How many of these target ids t2d knows."""
    return sum(0 <= one < len(known) and known[one] == 1 for one in ids)


def _embedding(place: Path, found: tuple[Tensor, ...], target: Path) -> EmbeddingCheck | None:
    """Compare rows spread over the vocabulary byte by byte; None if either side has none of its own, or another form."""
    own = _named(found, _EMBEDDINGS)
    other = _named(tuple(tensors(target)), _TARGET_EMBEDDINGS) if own is not None else None
    if own is None or other is None or own.shape != other.shape or own.dtype != other.dtype or len(own.shape) != 2:
        return None
    rows, columns = own.shape
    width = columns * {"F32": 4, "F16": 2, "BF16": 2}.get(own.dtype, 0)
    if not rows or not 0 < width <= _ROW_BYTES:
        return None
    chosen = sorted({rows * i // _ROWS for i in range(_ROWS)})
    equal = sum(tensor_bytes(place, own, r * width, width) == tensor_bytes(target, other, r * width, width) for r in chosen)
    return EmbeddingCheck(compared=len(chosen), equal=equal)
