"""Which layers of the target each engine feeds an EAGLE-3 drafter, and which the drafter was trained on.

All numbers are capture indices: i is the input of layer i, which is the output of layer i - 1. One list in a drafter's
configuration means up to three sets of layers in four code paths; none of them says so at start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from gpudiag.model.modelfiles import DraftConfig, Drafter

Layers = tuple[int, ...]


def default(layers: int) -> Layers:
    """What every code path takes when the configuration names no layers."""
    return (2, layers // 2, layers - 3)


class Learned(Struct, frozen=True, kw_only=True):
    """The layers that a drafter was trained on, as its file lets one conclude; `sure` where its form leaves no other reading."""

    layers: Layers
    because: str
    sure: bool


def learned(drafter: Drafter, layers: int) -> Learned:
    """By the conventions of those who write the field: SpecForge nests output layers, speculators lists input layers."""
    config = drafter.config
    if config.top_ids is not None:
        return Learned(
            layers=config.top_ids, because=f"it lists input layers {list(config.top_ids)}", sure=config.nested_ids is None
        )
    ids = config.nested_ids
    if ids is None:
        return Learned(layers=default(layers), because="it names no layers, so it was trained on the usual ones", sure=False)
    outputs = tuple(i + 1 for i in ids)
    if outputs == default(layers):
        return Learned(layers=outputs, because=f"eagle_config names the usual output layers {list(ids)}", sure=True)
    if ids == default(layers):
        return Learned(layers=ids, because=f"eagle_config names {list(ids)}, the usual layers counted by their input", sure=False)
    if drafter.dialect != "sglang" or (_is_latent(drafter) and ids[0] != 1) or max(ids) >= layers:
        return Learned(layers=ids, because=f"eagle_config names {list(ids)}, in this form counted by their input", sure=False)
    return Learned(layers=outputs, because=f"eagle_config names output layers {list(ids)}", sure=True)


def _is_latent(drafter: Drafter) -> bool:
    """Drafters for DeepSeek and Kimi count by input unless they begin with 1: what SGLang's class for them takes them for."""
    return "Eagle3DeepseekV2ForCausalLM" in drafter.architectures


def _sglang(config: DraftConfig, layers: int) -> Layers:
    """srt/models/llama.py and most others, set_eagle3_layers_to_capture; ids from spec_aux_hidden_state.py."""
    return tuple(i + 1 for i in config.nested_ids) if config.nested_ids is not None else default(layers)


def _sglang_deepseek(config: DraftConfig, layers: int) -> Layers:
    """srt/models/deepseek_v2.py, which kimi_k25.py passes on to, and glm4_moe_lite.py: adds one only if the first id is 1."""
    ids = config.nested_ids
    if ids is None:
        return default(layers)
    return tuple(i + 1 for i in ids) if ids[0] == 1 else ids


def _sglang_gpt_oss(config: DraftConfig, layers: int) -> Layers:
    ids = config.nested_ids
    if ids is None:
        return default(layers)
    return ids if max(ids) == layers else tuple(i + 1 for i in ids)


def _sglang_minimax_m3_vl(config: DraftConfig, layers: int) -> Layers:
    """srt/models/minimax_m3_vl.py adds one to its default as well."""
    ids = config.nested_ids
    return tuple(i + 1 for i in (default(layers) if ids is None else ids))


def _vllm_v1(config: DraftConfig, layers: int) -> Layers:
    """v1/worker/gpu_model_runner.py, _get_eagle3_aux_layers_from_config."""
    ids = config.top_ids or config.nested_ids
    return tuple(sorted(set(ids))) if ids else default(layers)


def _vllm_v2(config: DraftConfig, layers: int) -> Layers:
    """v1/worker/gpu/spec_decode/eagle/eagle3_utils.py: reads the top level, not eagle_config."""
    return tuple(sorted(set(config.top_ids))) if config.top_ids else default(layers)


PATHS: Final[dict[str, tuple[str, Callable[[DraftConfig, int], Layers]]]] = {
    "sglang": ("SGLang", _sglang),
    "sglang-deepseek": ("SGLang", _sglang_deepseek),
    "sglang-gpt-oss": ("SGLang", _sglang_gpt_oss),
    "sglang-minimax-m3-vl": ("SGLang", _sglang_minimax_m3_vl),
    "vllm-v1": ("vLLM, model runner V1", _vllm_v1),
    "vllm-v2": ("vLLM, model runner V2 (the default)", _vllm_v2),
}
"""Each code path by name. Executed with the functions of sglang 0.5.23 and vllm 0.33.0 for every row of the table that the
tests hold."""

KNOWN_VERSIONS: Final = {"sglang": "0.5.23", "vllm": "0.33.0"}


def paths_of(engine: str, architecture: str) -> tuple[str, ...]:
    """The code paths that may serve this architecture."""
    if engine == "vllm":
        return ("vllm-v2", "vllm-v1")
    lowered = architecture.lower()
    if lowered.startswith(("deepseek", "kimi", "glm4moelite")):
        return ("sglang-deepseek",)
    if lowered == "minimaxm3sparseforconditionalgeneration":
        return ("sglang-minimax-m3-vl",)
    return ("sglang-gpt-oss",) if lowered.startswith("gptoss") else ("sglang",)
