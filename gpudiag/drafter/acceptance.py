"""From requests and counters to acceptance: overall, by position in a round, by length of the context, by domain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gpudiag.drafter.bootstrap import estimate
from gpudiag.drafter.formulas import conditional_of
from gpudiag.model.metrics import SpeculationCounts
from gpudiag.model.speculation import (
    Acceptance,
    DeadEnds,
    DomainAcceptance,
    Estimate,
    RequestReading,
    ServerRun,
    Stretch,
)

EDGES: Final = (0, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 1 << 30)
"""Context lengths, in tokens, between which acceptance is told apart."""
_DEAD_ROUNDS: Final = 50
"""So many rounds without an accepted draft are no chance: of drafts that are right in one round of ten, 1 in 200 such rows."""


def by_requests(run: ServerRun) -> Acceptance | None:
    """Acceptance from what was counted for each request; None if nothing was."""
    counted = [r for r in run.requests if r.rounds]
    length = estimate(counted, _length)
    if length is None:
        return None
    depth = min(len(r.accepted_at) for r in counted)
    drafted = sum(r.drafted or 0 for r in counted) if all(r.drafted is not None for r in counted) else None
    accepted = sum(r.accepted or 0 for r in counted)
    return Acceptance(
        source="responses" if all(r.counted_by == "response" for r in counted) else "counters",
        length=length,
        rate=accepted / drafted if drafted else None,
        rounds=sum(r.rounds or 0 for r in counted),
        drafted=drafted,
        accepted=accepted,
        survival=_known(estimate(counted, _survival(i)) for i in range(depth)),
        conditional=_known(estimate(counted, _conditional(i)) for i in range(depth)),
    )


def by_counters(counts: SpeculationCounts, requests: float | None, tokens: float | None) -> Acceptance | None:
    """Acceptance from what the counters moved.

    SGLang counts rounds and not accepted drafts: there, length is tokens a round, the first token of each request left out.
    """
    if not counts.rounds:
        return None
    accepted = counts.accepted
    if accepted is None and requests is not None and tokens is not None:
        accepted = tokens - requests - counts.rounds
    if accepted is None or accepted < 0:
        return None
    survival = tuple(n / counts.rounds for n in counts.accepted_at)
    return Acceptance(
        source="counters",
        length=Estimate(value=1 + accepted / counts.rounds),
        rate=accepted / counts.drafted if counts.drafted else None,
        rounds=int(counts.rounds),
        drafted=int(counts.drafted) if counts.drafted is not None else None,
        accepted=int(accepted),
        survival=tuple(Estimate(value=s) for s in survival),
        conditional=tuple(Estimate(value=c) for c in conditional_of(survival)),
    )


def stretches(run: ServerRun) -> tuple[Stretch, ...]:
    """Length by context: where the rounds of the requests are known one by one."""
    made = []
    told = [r for r in run.requests if r.steps and r.prompt_tokens is not None]
    for since, until in itertools.pairwise(EDGES):
        pieces = [piece for r in told if (piece := _within(r, since, until))]
        length = estimate(pieces, _mean_length)
        if length is not None:
            rounds = sum(map(len, pieces))
            made.append(Stretch(since=since, until=until, rounds=rounds, length=length))
    return tuple(made)


def dead_ends(run: ServerRun) -> DeadEnds | None:
    """The answers that end without an accepted draft, where the rounds of the requests are known one by one."""
    told = [r for r in run.requests if r.prompt_tokens is not None and len(r.steps) >= 2 * _DEAD_ROUNDS]
    ends = [(r, _rounds_to_last_hit(r.steps)) for r in told]
    dead = [(r, lived) for r, lived in ends if len(r.steps) - lived >= _DEAD_ROUNDS]
    if not dead:
        return None
    return DeadEnds(
        answers=len(told),
        dead=len(dead),
        since=min((r.prompt_tokens or 0) + 1 + sum(r.steps[:lived]) + lived for r, lived in dead),
        rounds=min(len(r.steps) - lived for r, lived in dead),
    )


def _rounds_to_last_hit(steps: Sequence[int]) -> int:
    return next((i + 1 for i in range(len(steps) - 1, -1, -1) if steps[i]), 0)


def domains(run: ServerRun) -> tuple[DomainAcceptance, ...]:
    """Length by the domain that the prompts name, in their order; empty if they name fewer than two."""
    names = dict.fromkeys(r.domain for r in run.requests if r.domain is not None and r.rounds)
    made = []
    for name in names:
        of_it = [r for r in run.requests if r.domain == name and r.rounds]
        length = _length(of_it)
        if length is not None:
            made.append(DomainAcceptance(domain=name, rounds=sum(r.rounds or 0 for r in of_it), length=length))
    return tuple(made) if len(made) > 1 else ()


def _length(requests: Sequence[RequestReading]) -> float | None:
    rounds = sum(r.rounds or 0 for r in requests)
    return 1 + sum(r.accepted or 0 for r in requests) / rounds if rounds else None


def _survival(position: int) -> Callable[[Sequence[RequestReading]], float | None]:
    def share(requests: Sequence[RequestReading]) -> float | None:
        rounds = sum(r.rounds or 0 for r in requests)
        return sum(r.accepted_at[position] for r in requests) / rounds if rounds else None

    return share


def _conditional(position: int) -> Callable[[Sequence[RequestReading]], float | None]:
    def share(requests: Sequence[RequestReading]) -> float | None:
        reached = sum((r.accepted_at[position - 1] if position else r.rounds) or 0 for r in requests)
        return sum(r.accepted_at[position] for r in requests) / reached if reached else None

    return share


def _known(estimates: Iterable[Estimate | None]) -> tuple[Estimate, ...]:
    made: list[Estimate] = []
    for one in estimates:
        if one is None:
            break
        made.append(one)
    return tuple(made)


def _within(request: RequestReading, since: int, until: int) -> tuple[int, ...]:
    """Accepted drafts of the rounds that began at these context lengths."""
    at = (request.prompt_tokens or 0) + 1
    made = []
    for accepted in request.steps:
        if since <= at < until:
            made.append(accepted)
        at += accepted + 1
    return tuple(made)


def _mean_length(pieces: Sequence[Sequence[int]]) -> float | None:
    rounds = sum(map(len, pieces))
    return 1 + sum(map(sum, pieces)) / rounds if rounds else None
