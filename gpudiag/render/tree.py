"""The drawing of who waits for whom, as data: the culprits on top, whoever waits for them below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpudiag.model import node
from gpudiag.model.node import Node
from gpudiag.model.report import Report
from gpudiag.render.names import Names


@dataclass
class Branch:
    """Nodes that stand at the same place and wait for the branch above in the same way. `kind` is None for a culprit."""

    nodes: list[Node]
    where: str
    kind: str | None
    children: list[Branch] = field(default_factory=list)
    waits_for: list[Node] = field(default_factory=list)
    """Of a culprit: what it waits for itself that is no culprit, such as a file."""
    next: int | None = None
    """Of a culprit in a circle: index of the culprit that it waits for, and `next_kind` how."""
    next_kind: str = ""


def forest(report: Report, names: Names) -> list[Branch]:
    """One branch per group of culprits. Every other node appears once, below the first that it waits for."""
    return _Planter(report, names).forest()


def plain_node(target: Node) -> Node:
    """A process and its main thread are one node in a drawing."""
    pid = node.pid_of(target)
    return node.process(pid) if pid is not None and node.tid_of(target) == pid else target


class _Planter:
    def __init__(self, report: Report, names: Names) -> None:
        self._names = names
        self._culprits = list(dict.fromkeys(plain_node(c.node) for c in report.verdict.culprits))
        self._places = {
            plain_node(c.node): f"{c.function} ({c.file}:{c.line})" for c in report.verdict.culprits if c.function and c.file
        }
        self._holders: dict[Node, dict[Node, str]] = defaultdict(dict)
        self._waiters: dict[Node, dict[Node, str]] = defaultdict(dict)
        for wait in report.waits:
            waiter, holder = plain_node(wait.waiter), plain_node(wait.holder)
            if wait.need == "reply" and waiter != holder:
                self._holders[waiter].setdefault(holder, wait.kind)
                self._waiters[holder].setdefault(waiter, wait.kind)

    def forest(self) -> list[Branch]:
        roots = self._roots()
        seen = set(self._culprits)
        level = roots
        while level:
            level = [child for branch in level for child in self._grow(branch, seen)]
        return roots

    def _roots(self) -> list[Branch]:
        groups: list[Branch] = []
        for culprit in self._culprits:
            where = self._where(culprit)
            group = next((g for g in groups if g.where == where and where and not self._linked(culprit, g.nodes)), None)
            if group is None:
                groups.append(Branch(nodes=[culprit], where=where, kind=None))
            else:
                group.nodes.append(culprit)
        index = {n: i for i, group in enumerate(groups) for n in group.nodes}
        for i, group in enumerate(groups):
            targets = {h: kind for n in group.nodes for h, kind in self._holders.get(n, {}).items()}
            following = next((t for t in targets if index.get(t, i) != i), None)
            if following is not None:
                group.next, group.next_kind = index[following], targets[following]
            group.waits_for = [t for t in targets if t not in index and not self._leads_to(t, group.nodes)]
        return groups

    def _linked(self, culprit: Node, others: Sequence[Node]) -> bool:
        return any(o in self._holders.get(culprit, ()) or culprit in self._holders.get(o, ()) for o in others)

    def _leads_to(self, start: Node, ends: Sequence[Node]) -> bool:
        """Whether `start` waits, over any number of steps, for one of `ends`: then it is drawn below them."""
        seen, todo = {start}, [start]
        while todo:
            for following in self._holders.get(todo.pop(), ()):
                if following in ends:
                    return True
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        return False

    def _grow(self, branch: Branch, seen: set[Node]) -> list[Branch]:
        targets = branch.nodes + [t for t in branch.waits_for if node.pid_of(t) is None]
        groups: dict[tuple[str, str, bool], Branch] = {}
        for target in targets:
            for waiter, kind in self._waiters.get(target, {}).items():
                if waiter in seen:
                    continue
                seen.add(waiter)
                where = self._where(waiter)
                key = (kind, where, self._names.rank(waiter) is not None)
                groups.setdefault(key, Branch(nodes=[], where=where, kind=kind)).nodes.append(waiter)
        branch.children = sorted(groups.values(), key=lambda b: (self._names.rank(b.nodes[0]) is None, -len(b.nodes)))
        return branch.children

    def _where(self, target: Node) -> str:
        if target in self._places:
            return self._places[target]
        worker = self._names.worker(target)
        return (worker.where or "") if worker is not None and node.tid_of(target) is None else ""
