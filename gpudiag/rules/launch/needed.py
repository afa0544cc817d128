"""How many GPUs of this host a server is going to want."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from gpudiag.engines.words import taken_apart, value_of
from gpudiag.model.facts import Facts
from gpudiag.model.reading import Ok

_PARTLY_HERE: Final = (
    ("--data-parallel-size-local", "-dpl"),
    ("--data-parallel-rank", "-dpn"),
    ("--data-parallel-start-rank", "-dpr"),
    ("--data-parallel-external-lb", "-dpe"),
    ("--data-parallel-hybrid-lb", "-dph"),
    ("--data-parallel-multi-port-external-lb", "-dpm"),
    ("--use-ray",),
)
"""Options (vLLM 0.32, SGLang 0.5.23) with which one command serves a part of the replicas, or a Ray cluster places the ranks."""

_PLACED_BY: Final = (("--distributed-executor-backend",), ("--data-parallel-backend", "-dpb"))


class Needed(Struct, frozen=True, kw_only=True):
    """`words` say how the number comes about: 'tensor parallelism 4 x pipeline 2'."""

    gpus: int
    words: str


def needed(facts: Facts) -> Needed | None:
    """None if the server may spread over several hosts: its share of this one is not known here."""
    asked = facts.asked
    options = taken_apart(asked.arguments, facts.flags.value if isinstance(facts.flags, Ok) else None)
    several = value_of(options, ("--nnodes", "-n")) not in (None, "1")
    by_ray = any(value_of(options, names) == "ray" for names in _PLACED_BY)
    if several or by_ray or any(value_of(options, names) is not None for names in _PARTLY_HERE):
        return None
    # With data-parallel attention SGLang's replicas share the GPUs of the tensor-parallel group (docs.sglang.io, DP attention).
    shared = value_of(options, ("--enable-dp-attention",)) is not None
    parts = [("tensor parallelism", asked.tp), ("pipeline", asked.pp), ("data", 1 if shared else asked.dp)]
    count = 1
    for _, size in parts:
        count *= size
    named = [f"{name} {size}" for name, size in parts if size > 1 or name == "tensor parallelism"]
    return Needed(gpus=count, words=" x ".join(named))
