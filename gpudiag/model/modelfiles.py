"""What the files of a model and of its drafter say, without loading them."""

from __future__ import annotations

from typing import Literal

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


Dialect = Literal["sglang", "vllm", "speculators"]


class DraftShape(Struct, frozen=True, kw_only=True):
    """The sizes that give a drafter's weights their shapes. The last five are those of multi-head latent attention."""

    intermediate_size: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_nope_head_dim: int | None = None
    qk_rope_head_dim: int | None = None
    v_head_dim: int | None = None


class DraftConfig(Struct, frozen=True, kw_only=True):
    """The fields of a drafter's config.json. Layer ids are None where the file has none, flags where it has no such flag.

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
    shape: DraftShape = DraftShape()
    aux_count: int | None = None
    """num_aux_hidden_states: how many layers fc takes, where the file says so."""
    fc_norm: bool | None = None
    norm_before_fc: bool | None = None
    tied: bool | None = None
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    fc_bias: bool | None = None
    nested_flags: tuple[str, ...] = ()
    """Flags that stand under eagle_config and not at the top level, where an engine may not look."""
    dtype: str | None = None
    layer_type: str | None = None
    """model_type of its transformer layer."""
    quantization: str | None = None
    verifier: str | None = None
    """The target that it was made for, where the file names one."""
    verifier_architectures: tuple[str, ...] = ()


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


class SpecialToken(Struct, frozen=True, kw_only=True):
    """A token that the target emits by its own rules: an end of turn, a reasoning or tool tag."""

    id: int
    text: str
    ends: bool
    """Whether generation stops at it."""


class Drafter(Struct, frozen=True, kw_only=True):
    """A drafter directory."""

    path: str
    architectures: tuple[str, ...]
    config: DraftConfig
    tensors: tuple[Tensor, ...]
    vocab_map: VocabMap | None = None
    embedding: EmbeddingCheck | None = None
    weight_bytes: int = 0
    outside: tuple[SpecialToken, ...] = ()
    """Tokens that the target emits by its own rules and the draft vocabulary does not have."""

    @property
    def dialect(self) -> Dialect:
        """Whose form the directory has: by its configuration, and by the architecture's name, which every trainer sets."""
        if self.config.speculators:
            return "speculators"
        sglang = {"LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"}
        if self.config.top_ids is not None and self.config.nested_ids is None:
            return "vllm"
        return "sglang" if sglang.intersection(self.architectures) or self.config.nested_ids is not None else "vllm"
