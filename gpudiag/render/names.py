"""What a person calls the nodes of a report: 'rank 5', 'ranks 0-4, 6, 7', 'engine-core (pid 42)', a path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from gpudiag.model import node
from gpudiag.model.node import Node
from gpudiag.model.report import Report, Worker
from gpudiag.model.server import Rank

_WHERE: Final = re.compile(r"(?P<function>.*?) \((?P<file>.*):(?P<line>\d+)\)")


def rank_number(rank: Rank) -> int | None:
    """The one number that names a rank: its global rank, or its only coordinate. None if there are several or none."""
    if rank.global_ is not None:
        return rank.global_
    known = [c for c in (rank.tp, rank.pp, rank.dp, rank.ep) if c is not None]
    return known[0] if len(known) == 1 else None


def rank_name(rank: Rank) -> str:
    """'5', or 'tp1 pp0' where coordinates do not come down to one number, or '' for a process that is no rank."""
    number = rank_number(rank)
    if number is not None:
        return str(number)
    pairs = (("dp", rank.dp), ("pp", rank.pp), ("tp", rank.tp), ("ep", rank.ep))
    return " ".join(f"{name}{value}" for name, value in pairs if value is not None)


def ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 3, 4, 6, 7] as '0-4, 6, 7'. Two neighbours stay apart: '6, 7' reads faster than '6-7'."""
    parts: list[str] = []
    run: list[int] = []
    for number in [*sorted(set(numbers)), None]:
        if run and number != run[-1] + 1:
            parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
            run = []
        if number is not None:
            run.append(number)
    return ", ".join(parts)


def where_parts(where: str) -> tuple[str, str, str]:
    """Function, file and line of 'function (file:line)'; all of it as the function if it has another form."""
    match = _WHERE.fullmatch(where)
    return (match["function"], match["file"], match["line"]) if match else (where, "", "")


def short_where(where: str | None) -> str:
    """'all_reduce engine.py:88': function, and the last part of the file."""
    if not where:
        return ""
    function, file, line = where_parts(where)
    return f"{function} {file.rsplit('/', 1)[-1]}:{line}" if file else function


class Names:
    """Labels for the nodes of one report."""

    def __init__(self, report: Report, *, ellipsis: str = "…") -> None:
        self._ellipsis = ellipsis
        workers = report.target.workers if report.target else ()
        self._workers = {w.pid: w for w in workers}
        self._gpus = {w.gpu: w for w in workers if w.gpu is not None}
        known = [c for c in report.verdict.culprits if c.rank is not None]
        self._ranks = {c.pid: c.rank for c in known if c.pid is not None}
        self._gone = {c.node: c.rank for c in known if c.pid is None}

    def gpu_rank(self, target: Node) -> int | None:
        """The rank on whose GPU a kernel is: of the node 'gpu:UUID/kernel'."""
        uuid = _gpu(target)
        found = (rank_number(w.rank) for w in self._workers.values() if uuid is not None and w.gpu == uuid)
        return next((n for n in found if n is not None), None)

    def worker(self, target: Node) -> Worker | None:
        pid = node.pid_of(target)
        return self._workers.get(pid) if pid is not None else None

    def rank(self, target: Node) -> int | None:
        """The rank whose main thread or process a node is, or that is gone."""
        pid, tid = node.pid_of(target), node.tid_of(target)
        if pid is None:
            return self._gone.get(target)
        if tid not in (None, pid):
            return None
        worker = self._workers.get(pid)
        number = rank_number(worker.rank) if worker else None
        return number if number is not None else self._ranks.get(pid)

    def one(self, target: Node) -> str:
        pid, tid = node.pid_of(target), node.tid_of(target)
        number = self.rank(target)
        if number is not None:
            return f"rank {number}"
        if pid is None:
            number = self.gpu_rank(target)
            return f"the GPU of rank {number}" if number is not None else _without_process(target)
        if tid is not None and tid != pid:
            worker = self._workers.get(pid)
            owner = worker.role if worker is not None and not rank_name(worker.rank) else self.one(node.process(pid))
            return f"{owner} thread {tid}"
        worker = self._workers.get(pid)
        if worker is None:
            return f"pid {pid}"
        name = rank_name(worker.rank)
        return f"rank {name}" if name else f"{worker.role} (pid {pid})"

    def _kernel(self, target: Node) -> str | None:
        """'the GPU of rank 1', for the kernel that is resident there."""
        if not target.startswith("gpu:"):
            return None
        worker = self._gpus.get(target.removeprefix("gpu:").removesuffix("/kernel"))
        return f"the GPU of {self.one(node.process(worker.pid))}" if worker is not None else None

    def short(self, target: Node) -> str:
        """A label of few characters: 'rank 5', 'GPU rank 5', 'engine-core', 'pid 42', 'thread 43', '…/lock'."""
        pid, tid = node.pid_of(target), node.tid_of(target)
        if (path := node.path_of(target)) is not None:
            kind = path.partition(":")[0]
            return f"a {kind}" if kind in ("pipe", "socket") else f"{self._ellipsis}/{path.rsplit('/', 1)[-1]}"
        if pid is None:
            return self.one(target).replace("the GPU of rank", "GPU rank")
        if tid is not None and tid != pid:
            return f"thread {tid}"
        worker = self._workers.get(pid)
        if worker is not None and not rank_name(worker.rank):
            alone = sum(w.role == worker.role for w in self._workers.values()) == 1
            return worker.role if alone else f"pid {pid}"
        return self.one(target)

    def shorts(self, targets: Sequence[Node]) -> str:
        """The short labels of several nodes, ranks first and as ranges."""
        ranked = [n for n in map(self.rank, targets) if n is not None]
        others = dict.fromkeys(self.short(t) for t in targets if self.rank(t) is None)
        return ", ".join((*([f"{'ranks' if len(ranked) > 1 else 'rank'} {ranges(ranked)}"] if ranked else []), *others))

    def many(self, targets: Sequence[Node]) -> str:
        """'ranks 0-4, 6, 7', 'engine-core (pid 42) and pid 43', '12 threads of rank 0'."""
        numbers = {t: self.rank(t) for t in targets}
        ranked = [n for n in numbers.values() if n is not None]
        parts = [f"{'ranks' if len(ranked) > 1 else 'rank'} {ranges(ranked)}"] if ranked else []
        devices = {t: n for t in targets if numbers[t] is None and (n := self.gpu_rank(t)) is not None}
        if len(devices) > 1:
            parts.append(f"the GPUs of ranks {ranges(devices.values())}")
        others = [t for t in targets if numbers[t] is None and (len(devices) < 2 or t not in devices)]
        pids = {node.pid_of(t) for t in others}
        if len(others) > 3 and len(pids) == 1 and (pid := next(iter(pids))) is not None:
            parts.append(f"{len(others)} threads of {self.one(node.process(pid))}")
        elif len(others) > 4:
            parts.append(f"{len(others)} others" if ranked else f"{len(others)} processes")
        else:
            parts += [self.one(t) for t in others]
        return ", ".join(parts)


def _gpu(target: Node) -> str | None:
    head, slash, _ = target.partition("/")
    return head.removeprefix("gpu:") if slash and head.startswith("gpu:") else None


def _without_process(target: Node) -> str:
    if (path := node.path_of(target)) is not None:
        return path.replace(":[", " ").rstrip("]") if path.startswith(("pipe:[", "socket:[")) else path
    kind, _, rest = target.partition(":")
    if target == node.OUTSIDE:
        return "a client"
    if (uuid := _gpu(target)) is not None:
        return f"GPU {uuid.removeprefix('GPU-')[:8]}"
    if kind == "remote":
        return rest
    if kind == "rank":
        dimension, _, number = rest.partition(":")
        return f"rank {number}" if dimension == "global" else f"{dimension} rank {number}"
    if kind == "lock":
        pid, _, address = rest.partition(":")
        return f"lock {address} of pid {pid}"
    return target
