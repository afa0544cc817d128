"""Diagnose a running or recorded server the way the command does, with sources left out on purpose."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from gpudiag.collect.look import LookOptions, observe
from gpudiag.engines import server_of
from gpudiag.model.reading import Unavailable
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation, Snapshot
from gpudiag.rules.diagnose import diagnose

Source = Literal["stacks", "memory", "rights", "sockets", "change"]
SOURCES: tuple[Source, ...] = get_args(Source)

_FIELDS: dict[Source, tuple[str, ...]] = {
    "stacks": ("stacks", "lock_uses", "file_polls"),
    "memory": ("futexes", "lock_uses", "file_polls", "polls", "sleeps"),
    "rights": (
        "stacks",
        "lock_uses",
        "file_polls",
        "futexes",
        "polls",
        "sleeps",
        "fds",
        "syscalls",
        "io",
        "environ",
        "shared_memory",
        "libraries",
        "exe",
    ),
    "sockets": (),
    "change": (),
}


def look_at(root: int, *, samples: int = 2, interval_s: float = 1.0, confirm: bool = False) -> Observation:
    return observe([root], LookOptions(), samples=samples, interval_s=interval_s, confirm=confirm)


def judge(observation: Observation, root: int | None = None) -> Report:
    """The report on the server below `root`, by default the root that was looked at."""
    server = server_of(observation.last, root if root is not None else observation.last.roots[0])
    assert server is not None
    return diagnose(observation, server, command="attach", version="test")


def without(observation: Observation, source: Source) -> Observation:
    """The same observation as if one source had refused."""
    if source == "change":
        return Observation(snapshots=(observation.last,))
    return Observation(snapshots=tuple(_without(s, source) for s in observation.snapshots))


def _without(snapshot: Snapshot, source: Source) -> Snapshot:
    withheld = Unavailable(reason="withheld", help="")
    if source == "sockets":
        return msgspec.structs.replace(snapshot, sockets=withheld)
    fields = dict.fromkeys(_FIELDS[source], withheld)
    processes = tuple(msgspec.structs.replace(p, **fields) for p in snapshot.processes)
    files = () if "file_polls" in fields else snapshot.files
    return msgspec.structs.replace(snapshot, processes=processes, files=files)


def describe(report: Report) -> str:
    """One line for a failing test: what was said and about whom."""
    verdict = report.verdict
    who = [(c.node, c.rank, c.function) for c in verdict.culprits]
    return f"{verdict.status} {verdict.code} {verdict.confidence}: {verdict.title} {who}"
