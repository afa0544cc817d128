"""One rank's dump, reduced to what a comparison of ranks needs: a few bytes a record."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

import msgspec
from msgspec import Struct

from gpudiag.collect.flight_recorder_load import Dump

MOST_SIGNATURES: Final = 65_535
MOST_MEMBERS: Final = 65_536
COMPLETED: Final = 1
"""State of a record that is finished. Gloo's stay 'scheduled' and are retired (torch 2.13)."""
_PLACE: Final = itemgetter("is_p2p", "p2p_seq_id", "process_group", "collective_seq_id", "state")
_CALL: Final = itemgetter("profiling_name", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes")
_P2P: Final = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")
_RANK_IN_NAME: Final = re.compile(r"(\d{1,7})(?:\.[A-Za-z]\w{0,9})?$")


class Signature(Struct, frozen=True, array_like=True):
    """What was called: operation, and sizes and types of its inputs and outputs as the recorder printed them."""

    operation: str
    sizes: str
    dtypes: str


class Pending(Struct, frozen=True, array_like=True):
    """A send or receive that did not finish, between global ranks."""

    operation: str
    source: int
    destination: int
    group: str
    sequence: int
    sizes: str
    where: str
    created_at: float


class GroupRecord(Struct, frozen=True, array_like=True):
    """One rank's collectives in one process group, from sequence number `first` on, without gaps.

    `signatures` holds an unsigned 16-bit number (index into the table of the worker) for each, `states` a byte.
    """

    first: int
    signatures: bytes
    states: bytes


class RankSummary(Struct, frozen=True, array_like=True):
    """One dump. `groups` by group name; `members` are the global ranks of each group, `descriptions` their names.

    `whole` is whether it begins with the rank's first record: a group that is not in it then was never used by this rank.
    """

    rank: int
    dump: str
    written_at: float
    whole: bool
    records: int
    groups: dict[str, GroupRecord]
    members: dict[str, tuple[int, ...]]
    descriptions: dict[str, str]
    pending: tuple[Pending, ...]


class Share(Struct, frozen=True, array_like=True):
    """What one worker found: its table of signatures, its ranks, and the files it refused."""

    table: list[Signature]
    ranks: list[RankSummary]
    refused: dict[str, str]


class _Column:
    """A rank's collectives in one group so far; `due` is the number of the next."""

    __slots__ = ("due", "first", "signatures", "states")

    def __init__(self, first: int) -> None:
        self.first = self.due = first
        self.signatures = array("H")
        self.states = bytearray()


class Summarizer:
    """Reduces dumps one after the other, with one table of signatures for all of them."""

    def __init__(self) -> None:
        self.table: list[Signature] = []
        self._numbers: dict[bytes, int] = {}
        self._encode = msgspec.msgpack.Encoder().encode

    def summarize(self, dump: dict[str, Any], source: Dump, written_at: float) -> RankSummary:
        """One dump, which comes from `source` and was written at that Unix time.

        Raises ValueError where a dump has too many different operations; KeyError, TypeError, OverflowError or
        RecursionError where its form is another.
        """
        columns: dict[str, _Column] = {}
        pending: list[Pending] = []
        names: dict[str, str] = {}
        groups = _mapping(dump.get("pg_config"))
        members = {str(g): _members(_mapping(v).get("ranks")) for g, v in groups.items()}
        entries = dump["entries"]
        # Equal calls give equal bytes.
        calls = map(self._encode, map(_CALL, entries))
        for entry, call, (is_p2p, p2p_number, group, sequence, state) in zip(entries, calls, map(_PLACE, entries), strict=True):
            if is_p2p and p2p_number:
                pending += _pending(entry, members)
                continue
            column = columns.get(group[0])
            if column is None or sequence > column.due:
                # A ring buffer that wrapped around begins somewhere; after a gap only what follows counts.
                column = columns[group[0]] = _Column(sequence)
                names[str(group[0])] = str(group[1])[:100]
            elif sequence < column.due:
                continue
            column.due += 1
            number = self._numbers.get(call)
            column.signatures.append(self._add(call, entry) if number is None else number)
            column.states.append(COMPLETED if state == "completed" or entry.get("retired") else 0)
        return RankSummary(
            rank=_rank(dump, source.path),
            dump=source.argument,
            written_at=written_at,
            whole=not entries or entries[0].get("record_id") == 0,
            records=len(entries),
            groups={str(g): GroupRecord(c.first, c.signatures.tobytes(), bytes(c.states)) for g, c in columns.items()},
            members=members,
            descriptions=names | {str(g): str(_mapping(v).get("desc", ""))[:100] for g, v in groups.items()},
            pending=tuple(pending),
        )

    def _add(self, call: bytes, entry: dict[str, Any]) -> int:
        number = self._numbers[call] = len(self.table)
        if number > MOST_SIGNATURES:
            raise ValueError("too many different operations")
        self.table.append(signature(entry))
        return number


def _pending(entry: dict[str, Any], members: Mapping[str, tuple[int, ...]]) -> list[Pending]:
    """A send or receive that is not finished. Its name counts ranks within the group."""
    match = _P2P.search(str(entry["profiling_name"]))
    if match is None or entry["state"] == "completed" or entry.get("retired"):
        return []
    group = str(entry["process_group"][0])
    mine, other = (_global(int(match.group(n)), members.get(group, ())) for n in (2, 3))
    source, destination = (mine, other) if match.group(1) == "send" else (other, mine)
    return [
        Pending(
            operation=match.group(1),
            source=source,
            destination=destination,
            group=group,
            sequence=int(entry["p2p_seq_id"]),
            sizes=signature(entry).sizes,
            where=where(entry),
            created_at=created_at(entry),
        )
    ]


def _global(number: int, members: tuple[int, ...]) -> int:
    """The global rank of a group's rank: torch numbers the members of a group in their global order."""
    ordered = sorted(members)
    return ordered[number] if number < len(ordered) else number


def signature(entry: Mapping[str, Any]) -> Signature:
    """The call of one record, in text of bounded length."""
    return Signature(
        operation=str(entry["profiling_name"])[:100],
        sizes=f"{entry['input_sizes']} -> {entry['output_sizes']}"[:200],
        dtypes=f"{entry['input_dtypes']} -> {entry['output_dtypes']}"[:200],
    )


def where(entry: Mapping[str, Any]) -> str:
    """The innermost frame outside torch: 'train (train.py:42)'."""
    for frame in entry.get("frames") or ():
        file = str(frame.get("filename", ""))
        if "/torch/" not in file:
            return f"{str(frame.get('name', ''))[:100]} ({file[:300]}:{frame.get('line', 0)})"
    return ""


def created_at(entry: Mapping[str, Any]) -> float:
    """Unix time of the call, 0 where the record does not say."""
    nanoseconds = entry.get("time_created_ns")
    return nanoseconds / 1e9 if isinstance(nanoseconds, int) else 0.0


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _members(value: Any) -> tuple[int, ...]:
    """'[0, 1]', or a list of numbers."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError:
            return ()
    return tuple(n for n in value[:MOST_MEMBERS] if type(n) is int) if isinstance(value, (list, tuple)) else ()


def _rank(dump: Mapping[str, Any], path: str) -> int:
    """Torch puts the global rank at the end of the file's name; some writers put it into the dump."""
    if isinstance(dump.get("rank"), int):
        return int(dump["rank"])
    match = _RANK_IN_NAME.search(path)
    if match is None:
        raise ValueError("neither the dump nor its name says which rank wrote it")
    return int(match.group(1))
