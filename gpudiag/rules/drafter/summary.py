"""What a drafter is, in one line, and which layers it learned and will get."""

from __future__ import annotations

from typing import Final

from gpudiag.model.drafter import DrafterSummary, Fed
from gpudiag.model.facts import Facts
from gpudiag.rules.drafter.aux_layers import learned
from gpudiag.rules.drafter.feeding import feedings
from gpudiag.rules.drafter.pair import Pair, engines, pair
from gpudiag.rules.preflight.words import plural, size

_DIALECTS: Final = {"sglang": "SGLang and SpecForge", "vllm": "vLLM", "speculators": "speculators"}


def summary(facts: Facts) -> DrafterSummary | None:
    """None if the drafter could not be read."""
    both = pair(facts)
    if not isinstance(both, Pair):
        return None
    config = both.drafter.config
    trained = learned(both.drafter, both.target.layers) if both.target is not None and both.target.layers else None
    types = {t.dtype for t in both.drafter.tensors if t.name.endswith("weight")}
    return DrafterSummary(
        path=both.drafter.path,
        architecture=both.drafter.architectures[0] if both.drafter.architectures else None,
        dialect=both.drafter.dialect,
        layers=config.layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        draft_vocab_size=config.draft_vocab_size,
        dtype=config.quantization or ", ".join(sorted(types)) or config.dtype,
        weight_bytes=both.drafter.weight_bytes,
        max_positions=config.max_positions,
        made_for=config.verifier,
        trained_on=trained.layers if trained is not None else None,
        trained_because=trained.because if trained is not None else "",
        fed=tuple(
            Fed(path=one.name, layers=one.layers, known_by=one.how, where=one.link[0].excerpt)
            for engine in engines(facts)
            for one in feedings(facts, both, engine)
        ),
    )


def lines(one: DrafterSummary) -> tuple[str, ...]:
    """The summary as people read it: what it is, then what it learned and what it will get."""
    vocabulary = f"{one.draft_vocab_size or one.vocab_size} of {one.vocab_size} tokens"
    parts = [
        one.architecture or "no architecture",
        f"in the form of {_DIALECTS.get(one.dialect, one.dialect)}",
        f"{plural(one.layers or 1, 'layer')} x {one.hidden_size}",
        vocabulary,
        f"{one.max_positions} positions" if one.max_positions else "",
        one.dtype or "",
        size(one.weight_bytes),
        f"made for {one.made_for}" if one.made_for else "",
    ]
    told = [", ".join(part for part in parts if part)]
    if one.trained_on is not None:
        told.append(f"learned on the inputs of layers {_ids(one.trained_on)}: {one.trained_because}")
    told += [f"{fed.path} feeds the inputs of layers {_ids(fed.layers)} ({fed.known_by})" for fed in one.fed]
    return tuple(told)


def _ids(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers))
