"""What a server says about itself at /metrics, in terms that both engines share."""

from __future__ import annotations

from msgspec import Struct

from gpudiag.model.run import Serving
from gpudiag.model.server import Engine


class SpeculationCounts(Struct, frozen=True, kw_only=True):
    """Speculative decoding since the server started; None where the engine or its version does not say.

    vLLM counts drafts and tokens by position; SGLang counts rounds (0.5.17) and has gauges of its last log interval, which stay
    as they were when the server falls idle.
    """

    rounds: float | None = None
    """Verify rounds: vLLM's drafts, SGLang's verify calls, each once for every request in the batch."""
    drafted: float | None = None
    accepted: float | None = None
    accepted_at: tuple[float, ...] = ()
    """Accepted tokens by position, the first draft of a round first; empty where nobody counts them."""
    length: float | None = None
    """Gauge: tokens a round, including the one that the target adds."""
    rate: float | None = None
    """Gauge: accepted drafts of those proposed; of all nodes where drafts form a tree."""
    steps: float | None = None
    draft_tokens: float | None = None
    """Tokens that one round verifies, the root included (SGLang)."""


class ServerMetrics(Struct, frozen=True, kw_only=True):
    """One reading of /metrics, summed over data-parallel engines. None: this version does not say."""

    engine: Engine
    at: float
    """Unix time in seconds."""
    running: float | None = None
    waiting: float | None = None
    finished: float | None = None
    """Requests that ended well."""
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    """Counted when a request ends (SGLang) or at each step (vLLM)."""
    generated_live: float | None = None
    """Counted at each step in either engine."""
    tokens_per_s: float | None = None
    """Gauge of SGLang's last log interval."""
    speculation: SpeculationCounts | None = None
    """None where the server does not speculate or does not say so."""


class TokenCounts(Struct, frozen=True, kw_only=True):
    """Tokens that a server says it has read and generated since it started, in two readings `over_s` seconds apart."""

    before: float
    after: float
    over_s: float

    @property
    def moved(self) -> bool:
        return self.after > self.before


def grown(before: float | None, after: float | None) -> float | None:
    """How far a counter went; None if one reading lacks it or it fell, which a restart does."""
    if before is None or after is None or after < before:
        return None
    return after - before


def speculation_between(before: SpeculationCounts, after: SpeculationCounts) -> SpeculationCounts:
    """The counters of the time between two readings; the gauges are those of the later one."""
    # A vLLM that has not drafted yet may not list its positions.
    start = before.accepted_at or (0.0,) * len(after.accepted_at)
    at = tuple(grown(b, a) for b, a in zip(start, after.accepted_at, strict=False))
    return SpeculationCounts(
        rounds=grown(before.rounds, after.rounds),
        drafted=grown(before.drafted, after.drafted),
        accepted=grown(before.accepted, after.accepted),
        accepted_at=tuple(n for n in at if n is not None) if None not in at else (),
        length=after.length,
        rate=after.rate,
        steps=after.steps,
        draft_tokens=after.draft_tokens,
    )


def serving_between(before: ServerMetrics | None, after: ServerMetrics) -> Serving:
    """What the server does now: rates from the counters of two readings, else the gauges of the later one."""
    spent = after.at - before.at if before is not None else 0.0
    tokens = grown(before.generated_live, after.generated_live) if before is not None else None
    length = rate = None
    if (counts := after.speculation) is not None:
        if before is not None and before.speculation is not None:
            counts = speculation_between(before.speculation, counts)
        length, rate = acceptance(counts)
    return Serving(
        running=after.running,
        waiting=after.waiting,
        tokens_per_s=tokens / spent if tokens is not None and spent > 0 else after.tokens_per_s,
        acceptance_length=length,
        acceptance_rate=rate,
    )


def acceptance(counts: SpeculationCounts) -> tuple[float | None, float | None]:
    """Acceptance length and rate: by counters where they moved, else by the gauges."""
    length, rate = counts.length, counts.rate
    if counts.accepted is not None:
        length = 1 + counts.accepted / counts.rounds if counts.rounds else length
        rate = counts.accepted / counts.drafted if counts.drafted else rate
    return length, rate
