"""How many GPUs of this host a server is going to want."""

from __future__ import annotations

from msgspec import Struct

from gpudiag.engines.words import taken_apart, value_of
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok


class Needed(Struct, frozen=True, kw_only=True):
    """`words` say how the number comes about: 'tensor parallelism 4 x pipeline 2'."""

    gpus: int
    words: str


def needed(facts: Facts) -> Needed | None:
    """None if the server spreads over several hosts: its share of this one is not known here."""
    asked = facts.asked
    options = taken_apart(asked.arguments, facts.flags.value if isinstance(facts.flags, Ok) else None)
    if value_of(options, ("--nnodes", "-n")) not in (None, "1") or value_of(options, ("--data-parallel-size-local", "-dpl")):
        return None
    # With data-parallel attention SGLang's replicas share the GPUs of the tensor-parallel group (docs.sglang.io, DP attention).
    shared = value_of(options, ("--enable-dp-attention",)) is not None
    parts = [("tensor parallelism", asked.tp), ("pipeline", asked.pp), ("data", 1 if shared else asked.dp)]
    count = 1
    for _, size in parts:
        count *= size
    named = [f"{name} {size}" for name, size in parts if size > 1 or name == "tensor parallelism"]
    return Needed(gpus=count, words=" x ".join(named))
