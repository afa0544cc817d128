"""The wait-for graph: components, terminal nodes and the order of blame. Knows nothing of processes or machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from gpudiag.model.node import Node


class Cause(Struct, frozen=True, kw_only=True):
    """A terminal component: nodes that wait for nobody outside it.

    `nodes` has more than one entry for a cycle. `waiters` are all nodes that wait for it, directly or through others,
    and `weight` the sum of their weights.
    """

    nodes: tuple[Node, ...]
    cyclic: bool
    waiters: tuple[Node, ...]
    weight: float


def components(successors: Mapping[Node, Collection[Node]]) -> list[tuple[Node, ...]]:
    """Strongly connected components (Tarjan, iterative), each sorted; a component comes after all that it reaches."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    on_stack: set[Node] = set()
    stack: list[Node] = []
    found: list[tuple[Node, ...]] = []
    nodes = sorted({*successors, *(t for ts in successors.values() for t in ts)})
    for start in nodes:
        if start in index:
            continue
        work: list[tuple[Node, list[Node]]] = [(start, sorted(successors.get(start, ())))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            current, todo = work[-1]
            if todo:
                following = todo.pop(0)
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, sorted(successors.get(following, ()))))
                elif following in on_stack:
                    low[current] = min(low[current], index[following])
                continue
            work.pop()
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[current])
            if low[current] == index[current]:
                component = []
                while True:
                    member = stack.pop()
                    on_stack.discard(member)
                    component.append(member)
                    if member == current:
                        break
                found.append(tuple(sorted(component)))
    return found


def causes(
    edges: Iterable[tuple[Node, Node]], *, progressing: Collection[Node] = (), weights: Mapping[Node, float] | None = None
) -> tuple[Cause, ...]:
    """Terminal components of the graph, most blamed first.

    `edges` are (waiter, holder) pairs. Edges out of `progressing` nodes are dropped: what progresses waits for nobody for
    long. A node without any edge is no cause. `weights` says how much each waiter counts (0 for those not listed).
    """
    successors: dict[Node, set[Node]] = defaultdict(set)
    predecessors: dict[Node, set[Node]] = defaultdict(set)
    progress = set(progressing)
    for waiter, holder in edges:
        if waiter in progress:
            continue
        successors[waiter].add(holder)
        # A holder is a node even if it waits for nobody.
        successors.setdefault(holder, set())
        predecessors[holder].add(waiter)
    found = []
    for component in components(successors):
        inside = set(component)
        if any(not successors[n] <= inside for n in component):
            continue
        waiters = _reach(component, predecessors) - inside
        cyclic = len(component) > 1 or component[0] in successors[component[0]]
        counted = waiters | inside if cyclic else waiters
        weight = sum((weights or {}).get(w, 0.0) for w in counted)
        found.append(Cause(nodes=component, cyclic=cyclic, waiters=tuple(sorted(waiters)), weight=weight))
    return tuple(sorted(found, key=lambda c: (-c.weight, -len(c.waiters), c.nodes)))


def _reach(start: Iterable[Node], neighbours: Mapping[Node, Collection[Node]]) -> set[Node]:
    seen, todo = set(start), list(start)
    while todo:
        for following in neighbours.get(todo.pop(), ()):
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return seen
