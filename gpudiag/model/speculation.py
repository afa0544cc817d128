"""What was measured of speculative decoding: requests, acceptance, the cost of a round, and the report that carries it.

Terms. A *round* is one verify step of one request: up to `steps` drafts are proposed, some are accepted, and the target adds one
token. *Length* is tokens a round including that one. *Survival* of position i is the share of rounds in which the first i drafts
were all accepted; the *conditional* is survival over the survival of the position before.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpudiag.model.metrics import SpeculationCounts
from gpudiag.model.report import Report
from gpudiag.model.server import Engine

CountSource = Literal["response", "counters"]
"""Who counted: the engine in its response to the request, or its counters, read before and after."""

AcceptanceSource = Literal["responses", "counters", "log", "given"]

Shape = Literal["none", "collapses", "fades", "uneven", "healthy", "between"]
"""How the conditionals run: about zero; a normal first and then a drop; low and falling; rising from a low first, as where some
stretches are accepted and others are not; high and even; none of these."""


class Estimate(Struct, frozen=True, kw_only=True):
    """A value with its 95 % interval by bootstrap over requests; None where there are too few requests for one."""

    value: float
    low: float | None = None
    high: float | None = None


class RequestReading(Struct, frozen=True, kw_only=True):
    """One request, without its text. Times in seconds as the client saw them."""

    number: int
    """Place of the prompt in its file, from 1."""
    domain: str | None = None
    prompt_tokens: int | None = None
    tokens: int = 0
    """Tokens that the server says it generated."""
    first_s: float | None = None
    decode_s: float | None = None
    """From the first piece of text to the last."""
    decode_tokens: int | None = None
    """Tokens that came in that time, those of the first piece not counted."""
    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: tuple[int, ...] = ()
    """Accepted drafts by position."""
    steps: tuple[int, ...] = ()
    """Accepted drafts of each round in their order; empty where the pieces of the answer do not tell."""
    counted_by: CountSource | None = None
    problem: str | None = None
    """Why the request gave nothing."""


class Load(Struct, frozen=True, kw_only=True):
    """What a server was asked to do."""

    prompts: str
    """'built in', or the name of the file."""
    requests: int
    max_tokens: int
    concurrency: int
    temperature: float
    endpoint: Literal["chat", "text"]


class ServerRun(Struct, frozen=True, kw_only=True):
    """One server under one load. Numbers that the server does not give are None."""

    url: str
    engine: Engine
    version: str | None = None
    model: str | None = None
    load: Load
    requests: tuple[RequestReading, ...]
    steps: int | None = None
    """Drafts that one round chains (vLLM's num_speculative_tokens, SGLang's speculative_num_steps); 0 without speculation."""
    tree: bool = False
    """Whether drafts form a tree (SGLang, topk above 1), of which one path is accepted."""
    drafts_per_round: int | None = None
    """Nodes that one round proposes; equal to `steps` for a chain."""
    counters: SpeculationCounts | None = None
    """What the counters moved in the time of all requests."""
    tokens_counted: float | None = None
    """Tokens that the server's own counter says it generated in that time."""
    tokens_of_others: float | None = None
    """Of these, those that our requests do not explain."""
    took_s: float = 0.0
    notes: tuple[str, ...] = ()


class Acceptance(Struct, frozen=True, kw_only=True):
    """Acceptance by one source. `rate` is accepted of proposed drafts, where a tree counts all its nodes."""

    source: AcceptanceSource
    length: Estimate
    rate: float | None = None
    each: float | None = None
    """The acceptance of every position that would give this length if it were the same at all."""
    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    survival: tuple[Estimate, ...] = ()
    conditional: tuple[Estimate, ...] = ()


class Stretch(Struct, frozen=True, kw_only=True):
    """Rounds at one range of context lengths, in tokens of prompt and output."""

    since: int
    until: int
    rounds: int
    length: Estimate


class DeadEnds(Struct, frozen=True, kw_only=True):
    """Answers from some token of which on not one draft was accepted, for many rounds until they end."""

    answers: int
    """Answers of enough rounds to tell."""
    dead: int
    since: int
    """Tokens of prompt and output after which the earliest of them accepts nothing any more."""
    rounds: int
    """Rounds without an accepted draft at the end of the shortest of them."""


class DomainAcceptance(Struct, frozen=True, kw_only=True):
    """Acceptance length on the prompts of one domain."""

    domain: str
    rounds: int
    length: float


class Cost(Struct, frozen=True, kw_only=True):
    """What a round costs against plain decoding at the same concurrency."""

    ratio: Estimate
    """R: a round in plain decode steps, which is also the break-even acceptance length."""
    round_s: float | None = None
    step_s: float | None = None
    """A plain decode step of one request."""
    speedup: Estimate | None = None
    """Tokens a second with speculation over those without."""
    break_even_rate: float | None = None
    """(R - 1) / steps, for a chain."""
    break_even_each: float | None = None
    """Acceptance of every position at which speculation breaks even; None if even 1 is not enough."""
    basis: Literal["plain run", "simulated and plain run", "given speed-up"]


class StepsRow(Struct, frozen=True, kw_only=True):
    """What speculation with this number of steps would give."""

    steps: int
    length: float
    ratio: float
    speedup: float
    measured: bool


class StepsChoice(Struct, frozen=True, kw_only=True):
    """The best number of steps, 0 for none. 'assumed': cost taken to rise evenly from a plain step; 'fitted': from two runs."""

    best: int
    basis: Literal["assumed", "fitted"]
    rows: tuple[StepsRow, ...]


class Measurement(Struct, frozen=True, kw_only=True):
    """Everything that is known of one server's speculation. What was not measured is None or empty."""

    steps: int | None = None
    served: ServerRun | None = None
    plain: ServerRun | None = None
    simulated: ServerRun | None = None
    acceptance: Acceptance | None = None
    """By the best source there is."""
    others: tuple[Acceptance, ...] = ()
    """By the other sources, to compare."""
    stretches: tuple[Stretch, ...] = ()
    dead_ends: DeadEnds | None = None
    """None where rounds are not known one by one, or no answer ends so."""
    domains: tuple[DomainAcceptance, ...] = ()
    cost: Cost | None = None
    choice: StepsChoice | None = None
    shape: Shape | None = None
    """None where there are no positions, or too few rounds to tell."""


class SpeculationReport(Report, frozen=True, kw_only=True):
    """A report of schema gpudiag.report/1 with, in addition, what was measured. `target` is None."""

    measurement: Measurement
