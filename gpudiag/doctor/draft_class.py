"""Which class of an installed engine loads an EAGLE-3 drafter, and which flags of its configuration that class knows.

sglang 0.5.23 takes the class of srt/models that has the architecture's name. vllm 0.33.0 puts Eagle3 before a name that does
not begin or end with it (transformers_utils/configs/eagle.py), and goes by the layer's model_type for the form of
speculators (transformers_utils/configs/speculators/algos.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gpudiag.doctor import eagle3
from gpudiag.doctor.reads import bounded
from gpudiag.doctor.sources import Sources
from gpudiag.model.install import DraftClass, Environment
from gpudiag.model.modelfiles import Drafter
from gpudiag.model.reading import Unavailable

FLAGS: Final = (
    "norm_output",
    "fc_norm",
    "use_aux_norm",
    "norm_before_fc",
    "norm_before_residual",
    "attention_bias",
    "target_hidden_size",
    "num_aux_hidden_states",
    "tie_word_embeddings",
)
_SPECULATORS: Final = {"llama": "Eagle3LlamaForCausalLM", "qwen3": "Eagle3Qwen3ForCausalLM"}
_SOURCE_BYTES: Final = 8 << 20


def draft_classes(
    environment: Environment, engines: tuple[str, ...], drafter: Drafter, layer_type: str
) -> tuple[DraftClass, ...]:
    """The class of each engine that loads this drafter. Raises OSError if a source cannot be read."""
    return tuple(one for engine in engines if (one := _of(environment, engine, drafter, layer_type)) is not None)


def _of(environment: Environment, engine: str, drafter: Drafter, layer_type: str) -> DraftClass | None:
    package = environment.package(engine)
    architecture = name_for(engine, drafter, layer_type)
    if package is None or not package.origin or architecture is None:
        return None
    found = eagle3.class_of(Sources(engine, Path(package.origin).parent), engine, architecture)
    if isinstance(found, Unavailable):
        return None
    source = bounded(found.file, _SOURCE_BYTES)
    flags = tuple(flag for flag in FLAGS if flag.encode() in source)
    return DraftClass(
        engine=engine, architecture=architecture, class_name=found.name, file=found.file, line=found.line, flags=flags
    )


def name_for(engine: str, drafter: Drafter, layer_type: str) -> str | None:
    """The architecture's name by which an engine looks for the class; None where the configuration names none."""
    named = drafter.architectures[0] if drafter.architectures else None
    if engine == "sglang" or named is None:
        return named
    if drafter.config.speculators:
        return _SPECULATORS.get(layer_type, named)
    alike = named.startswith(("Eagle3", "PEagle", "Peagle")) or named.endswith("Eagle3")
    return named if alike else f"Eagle3{named}"
