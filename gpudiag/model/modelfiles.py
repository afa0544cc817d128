"""What the files of a model and of its drafter say, without loading them."""

from __future__ import annotations

from msgspec import Struct


class Tensor(Struct, frozen=True, kw_only=True):
    """A tensor as the header of a safetensors file describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str


class ModelConfig(Struct, frozen=True, kw_only=True):
    """The numbers of config.json that decide whether a drafter fits; None where the file does not have one."""

    architectures: tuple[str, ...]
    model_type: str | None
    hidden_size: int | None
    vocab_size: int | None
    layers: int | None
    max_positions: int | None
    quantization: str | None
    dtype: str | None


class ModelFiles(Struct, frozen=True, kw_only=True):
    """A model directory. `missing` are files that its index names and that are not there; `short` are cut off."""

    path: str
    config: ModelConfig
    weight_bytes: int
    shards: int
    missing: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    broken_links: tuple[str, ...] = ()
    has_tokenizer: bool = True


class DraftConfig(Struct, frozen=True, kw_only=True):
    """The fields of a drafter's config.json. Layer ids are None where the file has none.

    `nested_ids` stand under eagle_config (numbers of the layer whose *output* is read, as SpecForge writes them),
    `top_ids` at the top level (layer whose *input* is read, as vLLM and speculators write them).
    """

    hidden_size: int | None
    target_hidden_size: int | None
    vocab_size: int | None
    draft_vocab_size: int | None
    layers: int | None
    nested_ids: tuple[int, ...] | None
    top_ids: tuple[int, ...] | None
    norm_output: bool | None
    norm_before_residual: bool | None
    max_positions: int | None
    speculators: bool = False


class VocabMap(Struct, frozen=True, kw_only=True):
    """The tensors d2t (draft id -> offset to target id) and t2d (is a target id in the draft vocabulary)."""

    d2t_entries: int
    looks_absolute: bool
    """Read as offsets the entries leave the vocabulary or are not increasing; read as target ids they fit."""
    out_of_range: int
    not_increasing: int
    t2d_disagreements: int | None
    """Entries for which t2d says otherwise; None without t2d."""


class EmbeddingCheck(Struct, frozen=True, kw_only=True):
    """Rows of the drafter's embedding that were compared with the target's."""

    compared: int
    equal: int


class Drafter(Struct, frozen=True, kw_only=True):
    """A drafter directory."""

    path: str
    architectures: tuple[str, ...]
    config: DraftConfig
    tensors: tuple[Tensor, ...]
    vocab_map: VocabMap | None = None
    embedding: EmbeddingCheck | None = None
