"""Summaries of dumps -> what the ranks of each process group disagree about. Reads nothing."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpudiag.collect.flight_recorder_summary import COMPLETED, GroupRecord, RankSummary, Share, Signature
from gpudiag.model.collective import FlightAnalysis, FlightProblem, FlightProblemKind, FlightSide

_UNEVEN: Final = ("all_to_all", "gather", "scatter", "coalesced", "ALLTOALL")
"""Operations whose sizes may differ between ranks. 'gather' and 'scatter' cover the variants that start at or end in one rank."""
_EVEN: Final = ("all_gather", "reduce_scatter", "_all_gather_base", "_reduce_scatter_base")
_MOST_SIDES: Final = 8
_MOST_PROBLEMS: Final = 32


class Record(NamedTuple):
    """One record of one dump (its argument), by group and number: where it was made has to be looked up."""

    dump: str
    written_at: float
    group: str
    number: int


class Comparison(NamedTuple):
    """`records` has, for each problem and each of its sides, the record to look up; None where nothing is to be."""

    analysis: FlightAnalysis
    records: tuple[tuple[Record | None, ...], ...]


class _Problem(NamedTuple):
    told: FlightProblem
    records: tuple[Record | None, ...]


class _Rank(NamedTuple):
    """One rank in one group: the number of its first record, and after that one signature and one state each."""

    rank: int
    dump: str
    written_at: float
    first: int
    signatures: array[int]
    states: bytes

    @property
    def last(self) -> int:
        return self.first + len(self.signatures) - 1


def compare(shares: Iterable[Share]) -> Comparison:
    """The problems of every group, in each the one first that comes first in the group's sequence."""
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
    _add_silent(columns, ranks)
    table = list(numbers)
    problems: list[_Problem] = []
    in_flight: dict[str, int] = {}
    members = {g: m for summary in ranks for g, m in summary.members.items() if m}
    descriptions = {g: d for summary in ranks for g, d in summary.descriptions.items() if d}
    for group, column in sorted(columns.items()):
        column.sort(key=lambda r: r.rank)
        problems += _group_problems(group, descriptions.get(group, ""), members.get(group, ()), column, table)
        if open_at_end := _in_flight(column):
            in_flight[group] = open_at_end
    problems += _p2p_problems(ranks, descriptions)
    written = [r.written_at for r in ranks]
    analysis = FlightAnalysis(
        ranks=tuple(sorted(r.rank for r in ranks)),
        records=sum(r.records for r in ranks),
        problems=tuple(p.told for p in problems[:_MOST_PROBLEMS]),
        skipped=skipped,
        in_flight=in_flight,
        written_at=(min(written), max(written)) if written else None,
    )
    return Comparison(analysis, tuple(p.records for p in problems[:_MOST_PROBLEMS]))


def _add_silent(columns: dict[str, list[_Rank]], ranks: list[RankSummary]) -> None:
    """Members of a group whose whole record has nothing of it: they came to none of its operations."""
    for summary in ranks:
        for group, members in summary.members.items():
            others = columns.get(group)
            if not summary.whole or summary.rank not in members or group in summary.groups or not others:
                continue
            if min(r.first for r in others) == 1:
                others.append(_Rank(summary.rank, summary.dump, summary.written_at, 1, array("I"), b""))


def _column(summary: RankSummary, record: GroupRecord, renumber: list[int] | None) -> _Rank:
    own = array("H")
    own.frombytes(record.signatures)
    # All workers together may have more signatures than sixteen bits can number.
    signatures = array("I", own if renumber is None else [renumber[n] for n in own])
    return _Rank(summary.rank, summary.dump, summary.written_at, record.first, signatures, record.states)


def _group_problems(
    group: str, description: str, members: Sequence[int], column: list[_Rank], table: list[Signature]
) -> list[_Problem]:
    unread = tuple(sorted(set(members) - {r.rank for r in column}))
    start = max(r.first for r in column)
    shortest, longest = min(r.last for r in column), max(r.last for r in column)

    def problem(kind: FlightProblemKind, sequence: int, absent: tuple[int, ...] = ()) -> _Problem:
        here = [r for r in column if r.first <= sequence <= r.last]
        sides = list(_sides(here, sequence, table))
        told = FlightProblem(
            kind=kind,
            group=group,
            description=description,
            sequence=sequence,
            sides=tuple(side for side, _ in sides),
            absent=absent,
            unread=unread,
        )
        return _Problem(told, tuple(Record(r.dump, r.written_at, group, sequence) for _, r in sides))

    found: list[_Problem] = []
    differs = _first_difference(column, start, longest, table)
    if differs is not None:
        found.append(problem(differs[1], differs[0]))
    if shortest < longest:
        absent = tuple(r.rank for r in column if r.last == shortest)
        found.append(problem("missing", shortest + 1, absent))
    state = _first_state_difference(column, start, shortest)
    if state is not None:
        found.append(problem("state", state))
    return sorted(found, key=lambda p: p.told.sequence)


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
    name = operation.rpartition(":")[2]
    return any(part in name for part in _UNEVEN) and name not in _EVEN


def _first_state_difference(column: list[_Rank], start: int, shortest: int) -> int | None:
    """The first number that some ranks finished and others did not."""
    length = shortest - start + 1
    if length <= 0:
        return None
    # Nearly all ranks have the same states: only the different rows are looked through.
    one, *others = {r.states[start - r.first : start - r.first + length] for r in column}
    firsts = [next(i for i, (mine, other) in enumerate(zip(one, row, strict=True)) if mine != other) for row in others]
    return start + min(firsts) if firsts else None


def _in_flight(column: list[_Rank]) -> int:
    shortest, longest = min(r.last for r in column), max(r.last for r in column)
    if shortest != longest:
        return 0
    return min(len(r.states) - len(r.states.rstrip(b"\0")) for r in column)


def _sides(here: list[_Rank], sequence: int, table: list[Signature]) -> Iterable[tuple[FlightSide, _Rank]]:
    """Ranks that did the same, the fewest first, each with one of them."""
    alike: dict[tuple[int, int], list[_Rank]] = defaultdict(list)
    for rank in here:
        at = sequence - rank.first
        alike[(rank.signatures[at], rank.states[at])].append(rank)
    for (number, state), ranks in sorted(alike.items(), key=lambda kv: len(kv[1]))[:_MOST_SIDES]:
        called = table[number]
        side = FlightSide(
            ranks=tuple(r.rank for r in ranks),
            operation=called.operation,
            sizes=called.sizes,
            dtypes=called.dtypes,
            state="completed" if state == COMPLETED else "not completed",
        )
        yield side, ranks[0]


def _p2p_problems(ranks: list[RankSummary], descriptions: dict[str, str]) -> Iterable[_Problem]:
    """A send that waits without its receive, or the reverse; of several between the same two ranks the first."""
    present = {r.rank for r in ranks}
    waiting = {(p.operation, p.source, p.destination) for r in ranks for p in r.pending}
    seen: set[tuple[str, int, int]] = set()
    for summary, one in ((r, p) for r in ranks for p in r.pending):
        other = "recv" if one.operation == "send" else "send"
        mine, peer = (one.source, one.destination) if one.operation == "send" else (one.destination, one.source)
        kind = (one.operation, one.source, one.destination)
        if peer not in present or kind in seen or (other, one.source, one.destination) in waiting:
            continue
        seen.add(kind)
        side = FlightSide(
            ranks=(mine,),
            operation=f"{one.operation} {one.source} to {one.destination}",
            sizes=one.sizes,
            state="not completed",
            where=one.where,
            waited_s=waiting_time(one.created_at, summary.written_at),
        )
        told = FlightProblem(
            kind="p2p",
            group=one.group,
            description=descriptions.get(one.group, ""),
            sequence=one.sequence,
            sides=(side,),
            absent=(peer,),
        )
        yield _Problem(told, (None,))


def waiting_time(created_at: float, written_at: float) -> float | None:
    """Seconds that a call had waited when its dump was written. None where that is not known, or a clock was set between."""
    return round(written_at - created_at, 3) if 0 < created_at <= written_at else None
