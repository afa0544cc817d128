"""The workers of a report as rows, alike ones grouped."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from gpudiag.model import node
from gpudiag.model.report import Report, Worker
from gpudiag.render.names import Names, ranges, rank_name, rank_number, short_where
from gpudiag.render.style import Look, worker_look
from gpudiag.render.tree import plain_node

MANY = 12
"""Above this number of workers, those that do the same share a row."""


class Row(Struct, frozen=True, kw_only=True):
    """One worker, or several that do the same: those of `pids`. `waits_for` is in words."""

    pids: tuple[int, ...]
    rank: str
    pid: str
    role: str
    gpu: str
    look: Look
    where: str
    waits_for: str
    culprit: bool


def rows(report: Report, names: Names, *, group: bool | None = None) -> list[Row]:
    """Rows in rank order, other processes after them. Grouped if there are many, or as `group` says; culprits come first then."""
    if report.target is None:
        return []
    # What explains a state that is no fault marks nobody.
    blamed = report.verdict.culprits if report.verdict.severity != "info" else ()
    culprits = {node.pid_of(c.node) if c.pid is None else c.pid for c in blamed}
    workers = sorted(report.target.workers, key=worker_order)
    if not (len(workers) > MANY if group is None else group):
        return [_row([w], names, culprit=w.pid in culprits) for w in workers]
    groups: dict[tuple[object, ...], list[Worker]] = {}
    for worker in workers:
        key = (
            worker.pid not in culprits,
            rank_number(worker.rank) is None,
            worker.role,
            worker.state,
            short_where(worker.where),
            names.shorts([plain_node(n) for n in worker.waits_for]),
        )
        groups.setdefault(key, []).append(worker)
    ordered = sorted(groups.items(), key=lambda item: item[0][:2])
    return [_row(members, names, culprit=not key[0]) for key, members in ordered]


def _row(workers: list[Worker], names: Names, *, culprit: bool) -> Row:
    first = workers[0]
    return Row(
        pids=tuple(w.pid for w in workers),
        rank=_ranks(workers),
        pid=str(first.pid) if len(workers) == 1 else f"{len(workers)} pids",
        role=first.role,
        gpu=first.gpu or "" if len(workers) == 1 else "",
        look=worker_look(first.state),
        where=short_where(first.where),
        waits_for=names.shorts(list(dict.fromkeys(plain_node(n) for n in first.waits_for))),
        culprit=culprit,
    )


def _ranks(workers: Iterable[Worker]) -> str:
    numbers = [rank_number(w.rank) for w in workers]
    known = [n for n in numbers if n is not None]
    if known:
        return ranges(known)
    return ", ".join(dict.fromkeys(rank_name(w.rank) for w in workers))


def worker_order(worker: Worker) -> tuple[object, ...]:
    number = rank_number(worker.rank)
    coordinates = tuple(-1 if c is None else c for c in (worker.rank.dp, worker.rank.pp, worker.rank.tp, worker.rank.ep))
    return (number is None and max(coordinates) < 0, number if number is not None else -1, coordinates, worker.pid)
