"""What each code path of an engine will feed the drafter: as the engine itself said, else as its version is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from gpudiag.model.facts import Facts, ServedBy
from gpudiag.model.finding import Evidence
from gpudiag.model.install import AuxLayers, FedLayers
from gpudiag.model.reading import Ok
from gpudiag.rules.confidence import Link
from gpudiag.rules.drafter.aux_layers import KNOWN_VERSIONS, PATHS, Layers, paths_of
from gpudiag.rules.drafter.pair import Pair
from gpudiag.rules.preflight.base import seen

_NAMES: Final = {"sglang": "SGLang", "vllm-v1": "vLLM, model runner V1", "vllm-v2": "vLLM, model runner V2"}
_HOW: Final = {"import": "imported and asked", "source": "its function alone was run"}


class Feeding(Struct, frozen=True, kw_only=True):
    """One code path. `serves` is None where another one may serve instead."""

    path: str
    name: str
    layers: Layers
    link: Link
    how: str
    serves: bool | None


def feedings(facts: Facts, both: Pair, engine: ServedBy) -> tuple[Feeding, ...]:
    """Every code path of the engine that may serve this target; none if its configuration does not say enough."""
    if both.target is None or both.target.layers is None or not both.target.architectures:
        return ()
    asked = answer(facts, engine)
    if asked is not None and asked.layers:
        return tuple(_told(asked, one) for one in asked.layers if asked.runner in (None, one.path))
    return tuple(_known(both, engine, both.target.layers, both.target.architectures[0]))


def answer(facts: Facts, engine: ServedBy) -> AuxLayers | None:
    """What the installed engine said, if it was asked."""
    looked = facts.install.value.aux_layers if isinstance(facts.install, Ok) else None
    return next((a for a in looked.value if a.engine == engine), None) if isinstance(looked, Ok) else None


def _told(asked: AuxLayers, one: FedLayers) -> Feeding:
    claim = f"{asked.engine} itself ({_HOW[one.how]}): inputs of layers {', '.join(map(str, one.fed))}"
    source = "interpreter" if one.how == "import" else "class-definition"
    return Feeding(
        path=one.path,
        name=_NAMES.get(one.path, one.path),
        layers=one.fed,
        link=(Evidence(source=source, claim=claim, excerpt=one.where),),
        how=_HOW[one.how],
        serves=True if asked.runner == one.path or asked.engine == "sglang" else None,
    )


def _known(both: Pair, engine: ServedBy, layers: int, architecture: str) -> Iterator[Feeding]:
    paths = paths_of(engine, architecture)
    for path in paths:
        name, resolve = PATHS[path]
        version = KNOWN_VERSIONS[engine]
        yield Feeding(
            path=path,
            name=name,
            layers=resolve(both.drafter.config, layers),
            link=seen("source-text", f"what {name} makes of it, as of {engine} {version}"),
            how=f"as of {engine} {version}; the installed one was not asked",
            serves=True if len(paths) == 1 else None,
        )
