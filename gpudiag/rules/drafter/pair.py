"""The drafter and its target, as the checks need them."""

from __future__ import annotations

from msgspec import Struct

from gpudiag.model.facts import Facts, ServedBy
from gpudiag.model.modelfiles import Drafter, ModelConfig, Tensor
from gpudiag.model.reading import NOT_ASKED, Ok
from gpudiag.rules.preflight.base import Answer, skipped, unread


class Pair(Struct, frozen=True, kw_only=True):
    """A drafter with its target; `target` None where no model was named, or it could not be read."""

    drafter: Drafter
    target: ModelConfig | None

    @property
    def is_eagle3(self) -> bool:
        """By its architecture, or by the projection that joins several hidden states, which only EAGLE-3 has."""
        named = any("eagle3" in a.lower() for a in self.drafter.architectures)
        fc = self.tensor("fc.weight")
        width = self.drafter.config.target_hidden_size or self.drafter.config.hidden_size
        return named or self.drafter.config.speculators or bool(fc and width and fc.shape[-1] >= 3 * width)

    def tensor(self, *names: str) -> Tensor | None:
        by_name = {t.name: t for t in self.drafter.tensors}
        return next((by_name[n] for n in names if n in by_name), None)

    def ending(self, name: str) -> Tensor | None:
        """A tensor of this name, whatever an export put before it."""
        return next((t for t in self.drafter.tensors if t.name == name or t.name.endswith(f".{name}")), None)

    @property
    def target_hidden(self) -> int | None:
        if self.target is not None and self.target.hidden_size is not None:
            return self.target.hidden_size
        return self.drafter.config.target_hidden_size or self.drafter.config.hidden_size


def pair(facts: Facts) -> Pair | Answer:
    """The pair; or how a check about it ends."""
    reading = facts.drafter
    if not isinstance(reading, Ok):
        return skipped("no drafter named (--draft)") if reading == NOT_ASKED else unread(reading)
    target = facts.model.value.config if isinstance(facts.model, Ok) else None
    return Pair(drafter=reading.value, target=target)


def engines(facts: Facts) -> tuple[ServedBy, ...]:
    """The engine asked for; else those of the install; else both."""
    if facts.asked.engine is not None:
        return (facts.asked.engine,)
    known: tuple[ServedBy, ...] = ("sglang", "vllm")
    environment = facts.environment
    if environment is None:
        return known
    return tuple(name for name in known if (p := environment.package(name)) is not None and p.origin) or known
