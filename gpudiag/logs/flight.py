"""Flight-recorder dumps of torch.distributed (format 2.x as torch 2.5 to 2.13 write it), pickled or JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpudiag.logs.pickles import NotPlainError, load_plain
from gpudiag.model.log import Collective, FlightRecord, TraceFrame

MAX_ENTRIES: Final = 512
_TRAILING_RANK: Final = re.compile(r"(?:rank|dump|trace)?_?(\d{1,6})(?:\.(?:pkl|pickle|json|bin))?$")


def looks_like(head: bytes) -> bool:
    """Whether a file that starts with `head` may be a flight-recorder dump."""
    return (head[:1] == b"\x80" and b"version" in head[:64]) or (head.lstrip()[:1] == b"{" and b"pg_config" in head)


def load(data: bytes, name: str, source: int) -> FlightRecord | None:
    """One rank's dump, or None if `data` is no such dump. The rank comes from the file's name, as torch names it."""
    try:
        value = load_plain(data) if data[:1] == b"\x80" else msgspec.json.decode(data)
    except (NotPlainError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        return None
    match = _TRAILING_RANK.search(name)
    rank = value.get("rank")
    number = rank if isinstance(rank, int) else int(match.group(1)) if match else -1
    status = _mapping(value.get("pg_status"))
    groups = {str(k): _members(_mapping(v).get("ranks")) for k, v in _mapping(value.get("pg_config")).items()}
    return FlightRecord(
        rank=number,
        source=source,
        groups=groups,
        enqueued={str(k): _count(_mapping(v).get("last_enqueued_collective")) for k, v in status.items()},
        completed={str(k): _count(_mapping(v).get("last_completed_collective")) for k, v in status.items()},
        entries=tuple(_entry(e) for e in value["entries"][-MAX_ENTRIES:] if isinstance(e, dict)),
    )


def _mapping(value: object) -> Mapping[object, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _members(value: object) -> tuple[int, ...]:
    """'[0, 1]' or a list of numbers."""
    if isinstance(value, str):
        return tuple(int(n) for n in re.findall(r"\d{1,6}", value[:100_000]))
    return tuple(n for n in value if isinstance(n, int)) if isinstance(value, Sequence) else ()


def _entry(entry: Mapping[str, object]) -> Collective:
    group = entry.get("process_group")
    name = group[0] if isinstance(group, (list, tuple)) and group else entry.get("pg_id", "")
    frames = entry.get("frames")
    types = entry.get("input_dtypes")
    return Collective(
        group=str(name),
        sequence=_count(entry.get("collective_seq_id")),
        operation=str(entry.get("profiling_name", ""))[:100],
        state=str(entry.get("state", ""))[:40],
        input_sizes=str(entry.get("input_sizes", ""))[:200],
        dtype=str(types[0])[:40] if isinstance(types, (list, tuple)) and types else "",
        started=entry.get("time_discovered_started_ns") is not None,
        frames=tuple(_frame(f) for f in frames[:40] if isinstance(f, dict)) if isinstance(frames, (list, tuple)) else (),
    )


def _frame(frame: Mapping[str, object]) -> TraceFrame:
    return TraceFrame(
        file=str(frame.get("filename", ""))[:1000],
        line=max(0, _count(frame.get("line"))),
        function=str(frame.get("name", ""))[:300],
    )
