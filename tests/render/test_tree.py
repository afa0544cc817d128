"""The drawing as data: culprits on top, everybody once, and an end to it whatever the edges are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpudiag.model.finding import Culprit
from gpudiag.model.node import process
from gpudiag.render.names import Names, ranges, short_where, where_parts
from gpudiag.render.plain import clean, middle, short_file, short_path, tidy
from gpudiag.render.text import text
from gpudiag.render.tree import Branch, forest
from tests.render import samples
from tests.render.samples import SAMPLES, node


def everybody(branches: list[Branch]) -> list[str]:
    return [n for b in branches for n in (*b.nodes, *everybody(b.children))]


def test_waiters_stand_below_what_they_wait_for() -> None:
    report = SAMPLES["stopped-8"]()
    (root,) = forest(report, Names(report))
    assert root.nodes == [process(4006)]
    ranks, core = root.children
    assert ranks.nodes == [process(p) for p in (4001, 4002, 4003, 4004, 4005, 4007, 4008)]
    assert ranks.children == []
    assert core.nodes == [process(4000)]
    assert [c.nodes for c in core.children] == [[process(3990)]]
    assert [c.nodes for c in core.children[0].children] == [["outside"]]


def test_waiting_for_work_is_not_drawn() -> None:
    report = SAMPLES["stale-lock-4"]()
    assert process(41205) not in everybody(forest(report, Names(report)))
    assert forest(SAMPLES["idle"](), Names(SAMPLES["idle"]())) == []


def test_a_circle_knows_its_way() -> None:
    report = SAMPLES["lock-cycle-4"]()
    first, second = forest(report, Names(report))
    assert (first.next, second.next) == (1, 0)
    report = SAMPLES["mismatch-8"]()
    odd, others = forest(report, Names(report))
    assert (len(odd.nodes), len(others.nodes)) == (1, 7)


@settings(max_examples=200, deadline=None)
@given(
    edges=st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 12), st.sampled_from(["collective", "lock", "ipc"])), max_size=40
    ),
    culprits=st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True),
)
def test_any_graph_is_drawn_once(edges: list[tuple[int, int, str]], culprits: list[int]) -> None:
    waits = tuple(samples.wait(node(a), node(b), kind) for a, b, kind in edges)  # type: ignore[arg-type]
    report = samples.report(
        samples.finding("GPD301", "x", "t", samples.evidence("python-stack", "c")),
        workers=tuple(samples.worker(p, p, "waiting", f"f{p % 3} (/a/b.py:{p % 2})") for p in range(1, 13)),
        culprits=tuple(Culprit(node=node(p), pid=p, tid=p, rank=p) for p in culprits),
        waits=waits,
    )
    seen = everybody(forest(report, Names(report)))
    assert len(seen) == len(set(seen))
    reached, todo = set(culprits), list(culprits)
    while todo:
        holder = todo.pop()
        new = {a for a, b, _ in edges if b == holder} - reached
        reached |= new
        todo += new
    assert {process(p) for p in reached} == set(seen)
    assert text(report)


@given(numbers=st.sets(st.integers(0, 300)))
def test_ranges_say_every_number_once(numbers: set[int]) -> None:
    said: list[int] = []
    for part in filter(None, ranges(numbers).split(", ")):
        low, _, high = part.partition("-")
        said += range(int(low), int(high or low) + 1)
    assert said == sorted(numbers)


def test_ranges_read_well() -> None:
    assert ranges([0, 1, 2, 3, 4, 6, 7]) == "0-4, 6, 7"
    assert ranges([5]) == "5"
    assert ranges([]) == ""


def test_places() -> None:
    assert where_parts("f (/a/b.py:3)") == ("f", "/a/b.py", "3")
    assert where_parts("f.<locals>.g (/a (b)/c.py:3)") == ("f.<locals>.g", "/a (b)/c.py", "3")
    assert where_parts("futex_wait") == ("futex_wait", "", "")
    assert short_where("f (/a/b.py:3)") == "f b.py:3"
    assert short_file("/opt/venv/lib/python3.12/site-packages/torch/x.py:3") == "torch/x.py:3"
    assert short_file("/usr/lib/python3.12/threading.py:3") == "threading.py:3"
    assert short_file("/usr/lib/python3.12/dist-packages/a/b.py") == "a/b.py"
    assert short_file("/srv/engine/pool.py:40") == "/srv/engine/pool.py:40"
    assert tidy("at f (/v/site-packages/t/x.py:3), then") == "at f (t/x.py:3), then"


def test_short_texts() -> None:
    assert short_path("/a/bb/ccc/dddd", 14) == "/a/bb/ccc/dddd"
    assert short_path("/a/bb/ccc/dddd", 11) == "…/ccc/dddd"
    assert short_path("/a/bb/ccc/dddd", 7) == "…/dddd"
    assert len(short_path("/a/" + "d" * 50, 20)) == 20
    assert middle("abcdefghij", 7) == "ab…ghij"
    assert middle("abc", 3) == "abc"
    assert middle("abcdef", 1) == "a"
    assert clean("a\x1b[0m\tb\u202e\udcff\u2028") == "a\\x1b[0m\\x09b\\u202e\\xff\\u2028"
    assert clean("ä漢é") == "ä漢é"
    assert len(clean("x" * 9999)) == 2000
