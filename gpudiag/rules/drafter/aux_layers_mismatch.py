"""GPD602 before a start: the engine will feed the drafter other layers of the target than it was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.rules.drafter.aux_layers import KNOWN_VERSIONS, PATHS, paths_of, trained_on
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    width = list(_width(both))
    if both.target is None or both.target.layers is None or not both.target.architectures:
        return found(width, unknown("the target's configuration is not known", "gpudiag doctor --model DIR --draft DIR"))
    made = [
        *width,
        *(f for engine in engines(facts) for f in _fed(both, engine, both.target.layers, both.target.architectures[0])),
    ]
    return found(made, passed(f"{_ids(trained_on(both.drafter.config, both.target.layers))}, as it was trained"))


def _width(both: Pair) -> Iterator[Finding]:
    """Fc takes the hidden states of all captured layers side by side."""
    fc, hidden = both.tensor("fc.weight"), both.target_hidden
    ids = both.drafter.config.nested_ids or both.drafter.config.top_ids
    count = len(ids) if ids else 3
    if fc is None or not hidden or len(fc.shape) != 2 or fc.shape[1] == count * hidden:
        return
    yield CHECK.finding(
        f"The drafter takes {fc.shape[1]} numbers a token; {count} layers of a target of width {hidden} give {count * hidden}",
        [
            seen("checkpoint", f"fc.weight has shape {list(fc.shape)}"),
            seen("config-file", f"hidden size {hidden}, {count} layers"),
        ],
        ("this drafter is for a target of another width, or for another number of layers: use the one made for this target",),
        culprits=_culprit(both),
    )


def _fed(both: Pair, engine: str, layers: int, architecture: str) -> Iterator[Finding]:
    config = both.drafter.config
    trained = trained_on(config, layers)
    for path in paths_of(engine, architecture):
        name, resolve = PATHS[path]
        fed = resolve(config, layers)
        if fed == trained:
            continue
        far = len(fed) != len(trained) or any(abs(a - b) > 1 for a, b in zip(fed, trained, strict=False))
        yield CHECK.finding(
            f"{name} will feed the drafter the inputs of layers {_ids(fed)}; it was trained on {_ids(trained)}",
            [
                seen("config-file", _written(both), f"{both.drafter.path}/config.json"),
                seen("source-text", f"what {name} makes of it, as of {engine} {KNOWN_VERSIONS[engine]}"),
            ],
            (_step(engine, trained), "no log line says so: compare acceptance before and after"),
            culprits=_culprit(both),
            severity="error" if far else "warning",
        )


def _step(engine: str, trained: tuple[int, ...]) -> str:
    if engine == "vllm":
        return f'put "eagle_aux_hidden_state_layer_ids": {list(trained)} at the top level of the drafter\'s config.json'
    outputs = [i - 1 for i in trained]
    return f'put {{"eagle_aux_hidden_state_layer_ids": {outputs}}} under eagle_config in the drafter\'s config.json'


def _written(both: Pair) -> str:
    config = both.drafter.config
    if config.nested_ids is not None:
        return f"eagle_config names output layers {list(config.nested_ids)}"
    return f"it names input layers {list(config.top_ids)}" if config.top_ids is not None else "it names no layers"


def _ids(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))


def _culprit(both: Pair) -> tuple[Culprit, ...]:
    path = f"{both.drafter.path}/config.json"
    return (Culprit(node=f"file:{path}", path=path),)


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD602",
        name="drafter-aux-layers-mismatch",
        severity="error",
        category="drafter",
        asks="will the drafter get the layers of the target that it was trained on?",
    ),
    evaluate=evaluate,
)
