"""GPD606 before a start: the drafter's own configuration names another target than the one that it is going to be served with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.rules.drafter.pair import Pair, pair
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped

_CACHED: Final = re.compile(r"models--[^/]+--([^/]+)/snapshots/")
"""How a hub's cache writes the name of a model into its path."""
_STEP: Final = "acceptance of 0.3 falling to 0.1 is what a drafter of another version gives: use the one made for this target"


def evaluate(facts: Facts) -> Answer:
    both = pair(facts)
    if isinstance(both, Answer):
        return both
    config = both.drafter.config
    if not both.is_eagle3 or (config.verifier is None and not config.verifier_architectures):
        return skipped("the drafter does not say which target it was made for" if both.is_eagle3 else "no EAGLE-3 drafter")
    if both.target is None:
        return skipped("no target named")
    made = [*_kind(both), *_name(both, facts.asked.model or "")]
    return found(made[:1], passed(f"made for {config.verifier or ', '.join(config.verifier_architectures)}"))


def _kind(both: Pair) -> Iterator[Finding]:
    """Another kind of model, whatever it is called."""
    wanted = both.drafter.config.verifier_architectures
    has = both.target.architectures if both.target is not None else ()
    if not wanted or not has or any(_alike(_family(a), _family(b)) for a in wanted for b in has):
        return
    yield _finding(
        both, f"The drafter was made for {', '.join(wanted)}, the target is {', '.join(has)}", "config-file", "warning"
    )


def _name(both: Pair, directory: str) -> Iterator[Finding]:
    """Another model of the same name up to its version: Kimi-K2 and Kimi-K2.5."""
    verifier = both.drafter.config.verifier
    if verifier is None or not directory:
        return
    wanted, has = _words(PurePath(verifier).name), _words(_called(directory))
    if wanted != has and wanted[:1] == has[:1] and wanted[:1]:
        title = f"The drafter says that it was made for {verifier}; this target's directory is called {_called(directory)}"
        yield _finding(both, title, "source-text", "info")


def _called(directory: str) -> str:
    cached = _CACHED.search(f"{directory}/")
    return cached.group(1) if cached else PurePath(directory).name


def _words(name: str) -> list[str]:
    """'Kimi-K2.5' is ['kimi', 'k2.5']; how weights are stored is no part of a version."""
    left_out = {"fp8", "fp4", "nvfp4", "int4", "int8", "awq", "gptq", "bf16", "fp16", "hf", "gguf", "w4a16", "dynamic"}
    return [word for word in re.split(r"[-_ ]+", name.lower()) if word and word not in left_out]


def _family(architecture: str) -> str:
    """'Qwen3VLForConditionalGeneration' is 'qwen3vl'."""
    return architecture.partition("For")[0].lower()


def _alike(one: str, other: str) -> bool:
    """A multimodal model and the language model inside it begin alike."""
    return one.startswith(other) or other.startswith(one)


def _finding(both: Pair, title: str, source: str, severity: str) -> Finding:
    path = f"{both.drafter.path}/config.json"
    return CHECK.finding(
        title,
        [seen("config-file", f"speculators_config.verifier: {both.drafter.config.verifier}", path), seen(source, title)],
        (_STEP,),
        culprits=(Culprit(node=f"file:{path}", path=path),),
        severity="warning" if severity == "warning" else "info",
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD606",
        name="drafter-undertrained-or-off-domain",
        severity="warning",
        category="drafter",
        asks="was the drafter made for this target?",
    ),
    evaluate=evaluate,
)
