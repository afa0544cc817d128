"""Puts prompts to one server and gathers what its answers and its counters say.

Gentle: one request at a time unless asked otherwise, a bound on tokens, and an interrupt closes the connections, on which the
engines drop the requests.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from gpudiag.collect.metrics import read_metrics
from gpudiag.drafter.prompts import Prompt
from gpudiag.drafter.request import Ask, NoTemplateError, rounds_in, send
from gpudiag.drafter.server import ServerInfo
from gpudiag.errors import NotInspectableError
from gpudiag.model.metrics import ServerMetrics, SpeculationCounts, grown, speculation_between
from gpudiag.model.reading import Ok
from gpudiag.model.speculation import Load, RequestReading, ServerRun

_SETTLE_S: Final = 2.0
_RESTLESS_S: Final = 0.2
_LOOK_APART_S: Final = 0.02
_JOIN_S: Final = 0.5
_WARM_TOKENS: Final = 8
_PATIENCE: Final = 3
"""Requests that may fail from the start before the rest is spared."""


class Plan(Struct, frozen=True, kw_only=True):
    """Which prompts, how they are put, and how many at a time. `name` is where the prompts come from."""

    prompts: tuple[Prompt, ...]
    name: str
    how: Ask
    concurrency: int = 1
    headers: Mapping[str, str] = {}


Progress = Callable[[str], None]


def put(info: ServerInfo, plan: Plan, progress: Progress) -> ServerRun:
    """Put the prompts of a plan to a server. Raises NotInspectableError where no request is answered."""
    plan = _warm(info, plan)
    started = time.monotonic()
    before = _metrics(info, plan)
    readings = _one_by_one(info, plan, progress) if plan.concurrency == 1 else _together(info, plan, progress)
    _must_have_answers(info, readings)
    after = _settled(info, plan, before, sum(r.tokens for r in readings))
    readings = _padded(readings, info.steps)
    steps = info.steps if info.steps is not None else max((len(r.accepted_at) for r in readings if r.rounds), default=None)
    counted = grown(before.generated_tokens, after.generated_tokens) if before and after else None
    ours = sum(r.tokens for r in readings)
    # Fewer than ours: this version counts otherwise, or late, and says nothing about others.
    told = all(r.problem is None for r in readings) and counted is not None and counted >= ours
    return ServerRun(
        url=info.url,
        engine=info.engine,
        version=info.version,
        model=info.model,
        load=Load(
            prompts=plan.name,
            requests=len(plan.prompts),
            max_tokens=plan.how.max_tokens,
            concurrency=plan.concurrency,
            temperature=plan.how.temperature,
            endpoint=plan.how.endpoint,
        ),
        requests=readings,
        steps=steps,
        tree=info.tree,
        drafts_per_round=info.drafts_per_round if info.drafts_per_round is not None else steps,
        counters=_between(before, after),
        tokens_counted=counted,
        tokens_of_others=counted - ours if counted is not None and told else None,
        took_s=time.monotonic() - started,
        notes=(*info.notes, *_notes(before, readings)),
    )


def _warm(info: ServerInfo, plan: Plan) -> Plan:
    """One short request: the first may compile, and it shows whether there is a chat template."""
    how = msgspec.structs.replace(plan.how, max_tokens=min(_WARM_TOKENS, plan.how.max_tokens))
    try:
        reading = send(info, plan.prompts[0], how, headers=plan.headers)
    except NoTemplateError:
        plan = msgspec.structs.replace(plan, how=msgspec.structs.replace(plan.how, endpoint="text"))
        how = msgspec.structs.replace(how, endpoint="text")
        reading = send(info, plan.prompts[0], how, headers=plan.headers)
    if reading.problem is not None and not reading.problem.startswith("status "):
        # A prompt that is refused may be too long; a server that does not answer one does not answer the others.
        _must_have_answers(info, [reading])
    metrics = _metrics(info, plan)
    if metrics is not None:
        _settled(info, plan, metrics, 0)
    return plan


def _one_by_one(info: ServerInfo, plan: Plan, progress: Progress) -> tuple[RequestReading, ...]:
    """With counters read after each request where the answers hold no counts."""
    made: list[RequestReading] = []
    before = _metrics(info, plan)
    for number, prompt in enumerate(plan.prompts, 1):
        progress(f"{info.url}: request {number} of {len(plan.prompts)}")
        reading = send(info, prompt, plan.how, headers=plan.headers)
        if reading.problem is None and reading.counted_by is None and info.steps != 0 and before is not None:
            after = _settled(info, plan, before, reading.tokens)
            reading, before = (_counted(reading, before, after), after) if after is not None else (reading, before)
        elif reading.problem is not None:
            before = _metrics(info, plan)
        made.append(reading)
        if number == _PATIENCE:
            _must_have_answers(info, made)
    return tuple(made)


def _together(info: ServerInfo, plan: Plan, progress: Progress) -> tuple[RequestReading, ...]:
    """Threads that die with the program, so that an interrupt never waits for a server."""
    sockets, left = _Sockets(), deque(enumerate(plan.prompts))
    made: dict[int, RequestReading] = {}
    progress(f"{info.url}: {len(plan.prompts)} requests, {plan.concurrency} at a time")

    def work() -> None:
        # An empty deque, and one that an interrupt emptied, end the thread.
        with contextlib.suppress(IndexError):
            while True:
                index, prompt = left.popleft()
                try:
                    made[index] = send(info, prompt, plan.how, headers=plan.headers, opened=sockets.add)
                except NoTemplateError:
                    made[index] = RequestReading(number=prompt.number, problem="the chat endpoint is gone")

    threads = [threading.Thread(target=work, daemon=True) for _ in range(plan.concurrency)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_JOIN_S)
    finally:
        left.clear()
        sockets.shut()
    return tuple(made[index] for index in range(len(plan.prompts)))


class _Sockets:
    """Connections of all threads, so that one of them can end the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._ended = False

    def add(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.append(sock)
            ended = self._ended
        if ended:
            self.shut()

    def shut(self) -> None:
        with self._lock:
            self._ended = True
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


def _must_have_answers(info: ServerInfo, readings: Sequence[RequestReading]) -> None:
    if readings and all(r.problem is not None for r in readings):
        raise NotInspectableError(
            f"{info.url} answers no request: {readings[0].problem}",
            help="lower --max-tokens, give --prompts FILE, or see with gpudiag attach why it does not answer",
        )


def _metrics(info: ServerInfo, plan: Plan) -> ServerMetrics | None:
    if info.metrics is None:
        return None
    reading = read_metrics(info.url, headers=plan.headers)
    return reading.value if isinstance(reading, Ok) else None


def _settled(info: ServerInfo, plan: Plan, before: ServerMetrics | None, tokens: int) -> ServerMetrics | None:
    """The metrics once they hold these tokens and stand still: an engine may count just after its last word."""
    started = time.monotonic()
    last: ServerMetrics | None = None
    while before is not None and (waited := time.monotonic() - started) < _SETTLE_S:
        now = _metrics(info, plan)
        counted = grown(before.generated_tokens, now.generated_tokens) if now is not None else None
        still = last is not None and now is not None and now.generated_tokens == last.generated_tokens
        # Where others are served too it never stands still.
        if now is None or counted is None or (counted >= tokens and (still or counted == tokens > 0 or waited > _RESTLESS_S)):
            return now
        last = now
        time.sleep(_LOOK_APART_S)
    return last


def _between(before: ServerMetrics | None, after: ServerMetrics | None) -> SpeculationCounts | None:
    if before is None or after is None or after.speculation is None:
        return None
    return speculation_between(before.speculation or SpeculationCounts(), after.speculation)


def _counted(reading: RequestReading, before: ServerMetrics, after: ServerMetrics) -> RequestReading:
    """The request with what the counters moved, if no other request moved them."""
    counts = _between(before, after)
    if counts is None or not counts.rounds or grown(before.generated_tokens, after.generated_tokens) != reading.tokens:
        return reading
    # SGLang counts rounds only; the first token of a request comes from its prefill.
    accepted = counts.accepted if counts.accepted is not None else reading.tokens - 1 - counts.rounds
    if accepted < 0:
        return reading
    return msgspec.structs.replace(
        reading,
        rounds=int(counts.rounds),
        drafted=int(counts.drafted) if counts.drafted is not None else None,
        accepted=int(accepted),
        accepted_at=(at := tuple(map(int, counts.accepted_at))),
        steps=rounds_in(reading.steps, _histogram(int(counts.rounds), at)),
        counted_by="counters",
    )


def _histogram(rounds: int, accepted_at: tuple[int, ...]) -> tuple[int, ...]:
    """Rounds by the number of drafts that they accepted."""
    reached = (rounds, *accepted_at, 0)
    return tuple(a - b for a, b in itertools.pairwise(reached)) if accepted_at else ()


def _padded(readings: Sequence[RequestReading], steps: int | None) -> tuple[RequestReading, ...]:
    """A histogram ends where nothing was accepted any more (SGLang): give all the same number of positions.

    Pieces of an answer without counts may be anything: they are no rounds.
    """
    depth = max((steps or 0, *(len(r.accepted_at) for r in readings if r.accepted_at)), default=0)
    return tuple(
        msgspec.structs.replace(r, accepted_at=(*r.accepted_at, *[0] * (depth - len(r.accepted_at))))
        if r.counted_by == "response" or r.accepted_at
        else msgspec.structs.replace(r, steps=())
        for r in readings
    )


def _notes(before: ServerMetrics | None, readings: Sequence[RequestReading]) -> tuple[str, ...]:
    made = []
    if before is not None and before.running:
        made.append(f"{before.running:g} requests of others were running before the first of ours")
    problems = [r.problem for r in readings if r.problem is not None]
    if problems:
        made.append(f"{len(problems)} of {len(readings)} requests gave nothing: {problems[0]}")
    return tuple(made)
