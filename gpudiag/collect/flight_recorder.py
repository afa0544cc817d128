"""Compares the flight-recorder dumps of all ranks: who is missing where, who called something else.

The recorder counts what went through torch.distributed; not pynccl, custom all-reduce, or what a CUDA graph replays.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from gpudiag.collect.commands import Finished, run_all
from gpudiag.collect.flight_recorder_compare import Comparison, compare, waiting_time
from gpudiag.collect.flight_recorder_load import Dump
from gpudiag.collect.flight_recorder_summary import Share
from gpudiag.collect.flight_recorder_worker import Place, Wanted
from gpudiag.model.collective import FlightAnalysis, FlightProblem, FlightSide
from gpudiag.model.reading import Failed, Ok, Unavailable

FlightReading: TypeAlias = Ok[FlightAnalysis] | Unavailable | Failed

DEADLINE_S: Final = 120.0


def analyze(dumps: Sequence[Dump], *, deadline_s: float = DEADLINE_S, workers: int | None = None) -> FlightReading:
    """Read all dumps in child processes and compare them. Unavailable without a dump that can be read."""
    at, started = time.time(), time.perf_counter()
    count = max(1, min(workers or len(os.sched_getaffinity(0)), len(dumps)))
    parts = [dumps[n::count] for n in range(count)]
    shares: list[Share] = []
    trouble = ""
    for part, done in zip(parts, _run([["summarize", *(d.argument for d in part)] for part in parts], deadline_s), strict=True):
        if done.late or done.status != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            trouble = "it took too long" if done.late else said[-1][:200] if said else f"status {done.status}"
            shares.append(Share(table=[], ranks=[], refused={d.path: f"its reader died: {trouble}" for d in part}))
            continue
        shares.append(msgspec.msgpack.decode(done.stdout, type=Share))
    if trouble and not any(share.ranks for share in shares):
        return Failed(error=f"the reader of flight-recorder dumps died: {trouble}")
    comparison = compare(shares)
    if not comparison.analysis.ranks:
        reason = next(iter(comparison.analysis.skipped.values()), "there is none")
        return Unavailable(reason=f"no flight-recorder dump could be read: {reason}", help="")
    analysis = _with_places(comparison, max(1.0, deadline_s - (time.perf_counter() - started)))
    return Ok(value=analysis, at=at, took_s=time.perf_counter() - started)


def _run(arguments: Sequence[Sequence[str]], deadline_s: float) -> Sequence[Finished]:
    base = [sys.executable, "-P", "-m", "gpudiag.collect.flight_recorder_worker", str(os.getpid())]
    finished = run_all({n: [*base, *rest] for n, rest in enumerate(arguments)}, deadline_s=deadline_s).finished
    return [finished[n] for n in range(len(arguments))]


def _with_places(comparison: Comparison, deadline_s: float) -> FlightAnalysis:
    """With the line of the program and the waiting time of every side; without, where they cannot be read any more."""
    wanted: Wanted = defaultdict(list)
    for record in (r for records in comparison.records for r in records if r is not None):
        wanted[record.dump].append((record.group, record.number))
    if not wanted:
        return comparison.analysis
    (done,) = _run([["places", msgspec.json.encode(wanted).decode()]], deadline_s)
    if done.late or done.status != 0:
        return comparison.analysis
    answer = msgspec.msgpack.decode(done.stdout, type=dict[str, list[Place]])
    found = {(dump, *key): place for dump, keys in wanted.items() for key, place in zip(keys, answer.get(dump, ()), strict=False)}
    problems: list[FlightProblem] = []
    for problem, records in zip(comparison.analysis.problems, comparison.records, strict=True):
        sides = tuple(
            side if r is None else _placed(side, found.get((r.dump, r.group, r.number), Place()), r.written_at)
            for side, r in zip(problem.sides, records, strict=True)
        )
        problems.append(replace(problem, sides=sides))
    return replace(comparison.analysis, problems=tuple(problems))


def _placed(side: FlightSide, place: Place, written_at: float) -> FlightSide:
    waited_s = waiting_time(place.created_at, written_at) if side.state != "completed" else None
    return replace(side, where=place.where, waited_s=waited_s)
