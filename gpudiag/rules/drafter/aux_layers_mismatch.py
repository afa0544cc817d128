"""GPD602 before a start: the engine will feed the drafter other layers of the target than it was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts, ServedBy
from gpudiag.model.finding import Culprit, Finding
from gpudiag.rules.drafter.aux_layers import Learned, learned
from gpudiag.rules.drafter.expected_weights import aux_count
from gpudiag.rules.drafter.feeding import Feeding, feedings
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped, unknown

_FEWEST: Final = 7
"""With fewer layers the usual 2, n // 2 and n - 3 are not three different ones in rising order."""


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    if not both.is_eagle3:
        return skipped("no EAGLE-3 drafter")
    chosen = engines(facts)
    width = [f for engine in chosen[:1] for f in _width(both, engine)]
    if both.target is None or both.target.layers is None or not both.target.architectures:
        return found(width, unknown("the target's configuration is not known", "gpudiag drafter check DRAFT --target DIR"))
    if both.target.layers < _FEWEST:
        return found(width, unknown(f"a target of {both.target.layers} layers is too shallow for EAGLE-3's usual three"))
    trained = learned(both.drafter, both.target.layers)
    told = [one for engine in chosen for one in feedings(facts, both, engine)]
    made = [*width, *_outside(both, both.target.layers), *(f for one in told if (f := _fed(both, one, trained)) is not None)]
    return found(made, passed(f"{_ids(trained.layers)}, as it was trained ({_how(told)})"))


def _how(told: list[Feeding]) -> str:
    return "; ".join(dict.fromkeys(one.how for one in told)) or "no engine to ask"


def _width(both: Pair, engine: ServedBy) -> Iterator[Finding]:
    """Fc takes the hidden states of all captured layers side by side."""
    fc, hidden = both.tensor("fc.weight", "model.fc.weight"), both.target_hidden
    ids = both.drafter.config.top_ids if both.drafter.config.nested_ids is None else both.drafter.config.nested_ids
    count = len(ids) if ids else both.drafter.config.aux_count or aux_count(both.drafter.config, engine)
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


def _outside(both: Pair, layers: int) -> Iterator[Finding]:
    """Layers that this target does not have; the last possible input is that behind its last layer."""
    named = both.drafter.config.top_ids or both.drafter.config.nested_ids or ()
    beyond = [i for i in named if not 0 <= i <= layers]
    if beyond:
        yield CHECK.finding(
            f"The drafter names layer {_ids(tuple(beyond))} of a target that has {layers}",
            [
                seen("config-file", _written(both), f"{both.drafter.path}/config.json"),
                seen("config-file", f"num_hidden_layers {layers} in the target"),
            ],
            ("this drafter is for a deeper target: use the one made for this target",),
            culprits=_culprit(both),
        )


def _fed(both: Pair, one: Feeding, trained: Learned) -> Finding | None:
    if one.layers == trained.layers:
        return None
    engine = "vllm" if one.path.startswith("vllm") else "sglang"
    far = len(one.layers) != len(trained.layers) or any(abs(a - b) > 1 for a, b in zip(one.layers, trained.layers, strict=False))
    where = "" if one.serves else " (if it is the one that serves)"
    return CHECK.finding(
        f"{one.name}{where} will feed the drafter the inputs of layers {_ids(one.layers)}; "
        f"it was trained on {_ids(trained.layers)}",
        [
            seen("config-file", _written(both), f"{both.drafter.path}/config.json"),
            seen("convention" if trained.sure else "source-text", f"what it learned: {trained.because}"),
            one.link,
        ],
        (_step(engine, trained.layers), "no log line says so: compare acceptance before and after, or gpudiag drafter replay"),
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
        return f"eagle_config names layers {list(config.nested_ids)}"
    return f"it lists layers {list(config.top_ids)}" if config.top_ids is not None else "it names no layers"


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
