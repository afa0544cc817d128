"""The graph is a pure function: its laws hold for any edges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpudiag.waits.graph import causes, components

NODES = [f"n{i}" for i in range(8)]
EDGES = st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=24)


def reach(start: str, edges: list[tuple[str, str]]) -> set[str]:
    """Nodes reachable from `start`, by the dullest possible method."""
    seen = {start}
    for _ in NODES:
        seen |= {b for a, b in edges if a in seen}
    return seen


@given(EDGES)
def test_components_partition_the_nodes_and_are_mutually_reachable(edges: list[tuple[str, str]]) -> None:
    successors: dict[str, set[str]] = {}
    for a, b in edges:
        successors.setdefault(a, set()).add(b)
    found = components(successors)
    nodes = [n for c in found for n in c]
    assert sorted(nodes) == sorted({n for e in edges for n in e})
    for component in found:
        for n in component:
            together = {m for m in nodes if m in reach(n, edges) and n in reach(m, edges)}
            assert together == set(component)


@given(EDGES)
def test_a_cause_waits_for_nobody_outside_itself(edges: list[tuple[str, str]]) -> None:
    for cause in causes(edges):
        for n in cause.nodes:
            assert reach(n, edges) <= set(cause.nodes)


@given(EDGES)
def test_everybody_who_waits_waits_for_some_cause(edges: list[tuple[str, str]]) -> None:
    found = causes(edges)
    blamed = {n for c in found for n in c.nodes}
    for a, _ in edges:
        assert reach(a, edges) & blamed
        assert any(a in c.nodes or a in c.waiters for c in found)


@given(EDGES, st.sampled_from(NODES))
def test_what_progresses_is_never_charged_with_what_it_waits_for(edges: list[tuple[str, str]], moving: str) -> None:
    found = causes(edges, progressing={moving})
    for cause in found:
        assert not (cause.cyclic and moving in cause.nodes)


@given(EDGES, st.dictionaries(st.sampled_from(NODES), st.floats(0, 9), max_size=8))
def test_the_most_waited_for_comes_first(edges: list[tuple[str, str]], weights: dict[str, float]) -> None:
    found = causes(edges, weights=weights)
    assert [c.weight for c in found] == sorted((c.weight for c in found), reverse=True)


@given(EDGES, st.permutations(NODES))
def test_names_do_not_matter(edges: list[tuple[str, str]], names: list[str]) -> None:
    renamed = dict(zip(NODES, names, strict=True))
    before = {frozenset(renamed[n] for n in c.nodes) for c in causes(edges)}
    after = {frozenset(c.nodes) for c in causes([(renamed[a], renamed[b]) for a, b in edges])}
    assert before == after


def test_a_ring_and_its_tail() -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "a"), ("tail", "a")]
    (cause,) = causes(ring, weights={"tail": 1.0})
    assert cause.nodes == ("a", "b", "c")
    assert cause.cyclic
    assert cause.waiters == ("tail",)


def test_a_thread_that_waits_for_itself_is_a_cycle() -> None:
    (cause,) = causes([("a", "a")])
    assert cause.cyclic
