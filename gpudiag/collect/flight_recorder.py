"""Compares the flight-recorder dumps of all ranks: who is missing where, who called something else.

The recorder counts what went through torch.distributed; not pynccl, custom all-reduce, or what a CUDA graph replays.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from gpudiag.collect.commands import run_all
from gpudiag.collect.flight_recorder_load import RefusedError, load
from gpudiag.collect.flight_recorder_summary import COMPLETED, GroupRecord, Pending, RankSummary, Share, Signature, where
from gpudiag.model.collective import FlightAnalysis, FlightProblem, FlightProblemKind, FlightSide
from gpudiag.model.reading import Failed, Ok, Unavailable

FlightReading: TypeAlias = Ok[FlightAnalysis] | Unavailable | Failed

DEADLINE_S: Final = 120.0
_UNEVEN: Final = ("all_to_all", "gather", "scatter", "coalesced", "ALLTOALL")
"""Operations whose sizes may differ between ranks. 'gather' and 'scatter' cover the variants that start at or end in one rank."""
_EVEN: Final = ("all_gather", "reduce_scatter", "_all_gather_base", "_reduce_scatter_base")
_MOST_PLACES: Final = 8


class _Rank(NamedTuple):
    """One rank in one group: the number of its first record, and after that one signature and one state each."""

    rank: int
    path: str
    first: int
    signatures: array[int]
    states: bytes

    @property
    def last(self) -> int:
        return self.first + len(self.signatures) - 1


def analyze(paths: Sequence[Path], *, deadline_s: float = DEADLINE_S, workers: int | None = None) -> FlightReading:
    """Read all dumps in child processes and compare them. Unavailable without a dump that can be read."""
    at, started = time.time(), time.perf_counter()
    count = max(1, min(workers or len(os.sched_getaffinity(0)), len(paths)))
    base = [sys.executable, "-P", "-m", "gpudiag.collect.flight_recorder_worker", str(os.getpid())]
    commands = {n: [*base, *(str(p) for p in paths[n::count])] for n in range(count)}
    shares, trouble = [], ""
    for done in run_all(commands, deadline_s=deadline_s).finished.values():
        if done.late or done.status != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            trouble = "it took too long" if done.late else said[-1][:200] if said else f"status {done.status}"
            continue
        shares.append(msgspec.msgpack.decode(done.stdout, type=Share))
    if trouble and not shares:
        return Failed(error=f"the reader of flight-recorder dumps died: {trouble}")
    analysis = compare(shares)
    if not analysis.ranks:
        reason = next(iter(analysis.skipped.values()), "there is none")
        return Unavailable(reason=f"no flight-recorder dump could be read: {reason}", help="")
    return Ok(value=analysis, at=at, took_s=time.perf_counter() - started)


def compare(shares: Iterable[Share]) -> FlightAnalysis:
    """The problems of every group, first the one that comes first in a group's sequence."""
    numbers: dict[Signature, int] = {}
    ranks: list[RankSummary] = []
    columns: dict[str, list[_Rank]] = defaultdict(list)
    skipped: dict[str, str] = {}
    for share in shares:
        renumber = [numbers.setdefault(s, len(numbers)) for s in share.table]
        same = renumber == list(range(len(renumber)))
        skipped.update(share.refused)
        ranks += share.ranks
        for summary in share.ranks:
            for group, record in summary.groups.items():
                columns[group].append(_column(summary, record, None if same else renumber))
    table = list(numbers)
    problems: list[FlightProblem] = []
    in_flight: dict[str, int] = {}
    members = {g: m for summary in ranks for g, m in summary.members.items() if m}
    descriptions = {g: d for summary in ranks for g, d in summary.descriptions.items() if d}
    for group, column in sorted(columns.items()):
        column.sort(key=lambda r: r.rank)
        problems += _group_problems(group, descriptions.get(group, ""), members.get(group, ()), column, table)
        if open_at_end := _in_flight(column):
            in_flight[group] = open_at_end
    problems += _p2p_problems([p for r in ranks for p in r.pending], {r.rank for r in ranks}, descriptions)
    return FlightAnalysis(
        ranks=tuple(sorted(r.rank for r in ranks)),
        records=sum(r.records for r in ranks),
        problems=tuple(problems),
        skipped=skipped,
        in_flight=in_flight,
    )


def _column(summary: RankSummary, record: GroupRecord, renumber: list[int] | None) -> _Rank:
    signatures = array("H")
    signatures.frombytes(record.signatures)
    if renumber is not None:
        signatures = array("H", [renumber[n] for n in signatures])
    return _Rank(summary.rank, summary.path, record.first, signatures, record.states)


def _group_problems(
    group: str, description: str, members: Sequence[int], column: list[_Rank], table: list[Signature]
) -> list[FlightProblem]:
    unread = tuple(sorted(set(members) - {r.rank for r in column}))
    start = max(r.first for r in column)
    shortest, longest = min(r.last for r in column), max(r.last for r in column)

    def problem(kind: FlightProblemKind, sequence: int, absent: tuple[int, ...] = ()) -> FlightProblem:
        here = [r for r in column if r.first <= sequence <= r.last]
        sides = tuple(_sides(here, sequence, table))
        return FlightProblem(
            kind=kind, group=group, description=description, sequence=sequence, sides=sides, absent=absent, unread=unread
        )

    found: list[FlightProblem] = []
    differs = _first_difference(column, start, longest, table)
    if differs is not None:
        found.append(problem(differs[1], differs[0]))
    if shortest < longest:
        absent = tuple(r.rank for r in column if r.last == shortest)
        found.append(problem("missing", shortest + 1, absent))
    state = _first_state_difference(column, start, shortest)
    if state is not None:
        found.append(problem("state", state))
    return sorted(found, key=lambda p: p.sequence)


def _first_difference(
    column: list[_Rank], start: int, longest: int, table: list[Signature]
) -> tuple[int, FlightProblemKind] | None:
    """The first number at which two ranks called different things, and in what they differ first: type, size or dtype."""
    first: tuple[int, FlightProblemKind] | None = None
    reference = max(column, key=lambda r: r.last)
    whole = reference.signatures[start - reference.first :].tobytes()
    for rank in column:
        mine = rank.signatures[start - rank.first :]
        if whole.startswith(mine.tobytes()):
            continue
        for offset, (one, other) in enumerate(zip(mine, reference.signatures[start - reference.first :], strict=False)):
            kind = _difference(table[one], table[other]) if one != other else None
            if kind is not None:
                if first is None or start + offset < first[0]:
                    first = (start + offset, kind)
                break
    return first if first is not None and first[0] <= longest else None


def _difference(one: Signature, other: Signature) -> FlightProblemKind | None:
    if one.operation != other.operation:
        return "type"
    if one.sizes != other.sizes and not _uneven(one.operation):
        return "size"
    return "dtype" if one.dtypes != other.dtypes else None


def _uneven(operation: str) -> bool:
    name = operation.removeprefix("nccl:")
    return any(part in name for part in _UNEVEN) and name not in _EVEN


def _first_state_difference(column: list[_Rank], start: int, shortest: int) -> int | None:
    """The first number that some ranks finished and others did not."""
    length = shortest - start + 1
    if length <= 0:
        return None
    states = [r.states[start - r.first : start - r.first + length] for r in column]
    if all(s == states[0] for s in states):
        return None
    return next((start + i for i in range(length) if len({s[i] for s in states}) > 1), None)


def _in_flight(column: list[_Rank]) -> int:
    shortest, longest = min(r.last for r in column), max(r.last for r in column)
    if shortest != longest:
        return 0
    return min(len(r.states) - len(r.states.rstrip(b"\0")) for r in column)


def _sides(here: list[_Rank], sequence: int, table: list[Signature]) -> Iterable[FlightSide]:
    """Ranks that did the same, the fewest first; where in the program is read again from one dump for each."""
    alike: dict[tuple[int, int], list[_Rank]] = defaultdict(list)
    for rank in here:
        at = sequence - rank.first
        alike[(rank.signatures[at], rank.states[at])].append(rank)
    for (number, state), ranks in sorted(alike.items(), key=lambda kv: len(kv[1]))[:_MOST_PLACES]:
        called = table[number]
        yield FlightSide(
            ranks=tuple(r.rank for r in ranks),
            operation=called.operation,
            sizes=called.sizes,
            dtypes=called.dtypes,
            state="completed" if state == COMPLETED else "not completed",
            where=_place(ranks[0], sequence),
        )


def _place(rank: _Rank, sequence: int) -> str:
    """The line that issued a collective. The dump was accepted before, in a child; it is read here once more."""
    try:
        dump = load(Path(rank.path).read_bytes())
    except (OSError, RefusedError):
        return ""
    entries = (e for e in dump["entries"] if e.get("collective_seq_id") == sequence and not e.get("is_p2p"))
    return next((where(e) for e in entries if e.get("profiling_name")), "")


def _p2p_problems(pending: list[Pending], present: set[int], descriptions: dict[str, str]) -> list[FlightProblem]:
    """A send that waits without its receive, or the reverse."""
    waiting = {(p.operation, p.source, p.destination) for p in pending}
    found = []
    for one in pending:
        other = "recv" if one.operation == "send" else "send"
        mine, peer = (one.source, one.destination) if one.operation == "send" else (one.destination, one.source)
        if peer not in present or (other, one.source, one.destination) in waiting:
            continue
        side = FlightSide(ranks=(mine,), operation=f"{one.operation} {one.source} to {one.destination}", sizes=one.sizes)
        found.append(
            FlightProblem(
                kind="p2p",
                group=one.group,
                description=descriptions.get(one.group, ""),
                sequence=one.sequence,
                sides=(side,),
                absent=(peer,),
            )
        )
    return found
