"""Flight-recorder dumps: what ranks disagree about, and what a dump may not do."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from gpudiag.collect.flight_recorder import analyze
from gpudiag.collect.flight_recorder_load import Dump, RefusedError, load
from gpudiag.model.collective import FlightAnalysis
from gpudiag.model.reading import Ok, Unavailable
from tests.flight_recorder.dumps import Fault, dump, entry, p2p, write

RECORDED = Path(__file__).parent / "recorded"


def analysis(paths: list[Path]) -> FlightAnalysis:
    reading = analyze([Dump(str(p)) for p in paths])
    assert isinstance(reading, Ok), reading
    return reading.value


def test_ranks_that_agree_have_no_problem(tmp_path: Path) -> None:
    found = analysis(write(tmp_path, 4, 20))
    assert (found.ranks, found.records, found.problems, found.skipped, found.in_flight) == ((0, 1, 2, 3), 80, (), {}, {})


@pytest.mark.parametrize("fault", ["missing", "type", "size", "dtype", "state"])
def test_the_first_disagreement_is_named_with_its_ranks(tmp_path: Path, fault: Fault) -> None:
    found = analysis(write(tmp_path, 6, 30, fault, at=17, odd=4))
    problem = found.problems[0]
    assert (problem.kind, problem.group, problem.description, problem.sequence) == (fault, "0", "default_pg", 17)
    if fault == "missing":
        assert problem.absent == (4,)
        assert problem.sides[0].ranks == (0, 1, 2, 3, 5)
    else:
        assert [side.ranks for side in problem.sides] == [(4,), (0, 1, 2, 3, 5)]
    assert problem.sides[-1].where == "forward (/srv/model.py:43)"


def test_a_send_without_its_receive_names_the_peer(tmp_path: Path) -> None:
    (problem,) = analysis(write(tmp_path, 3, 5, "p2p", odd=2)).problems
    assert (problem.kind, problem.absent, problem.sides[0].ranks) == ("p2p", (2,), (0,))


def test_sizes_that_may_differ_are_no_mismatch(tmp_path: Path) -> None:
    for rank in range(2):
        one = dump(rank, 2, 3)
        one["entries"].append({**entry(4, operation="nccl:all_to_all", size=100 + rank)})
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(one, 2))
    assert analysis(sorted(tmp_path.iterdir())).problems == ()


def test_rings_that_wrapped_differently_are_compared_where_both_have_records(tmp_path: Path) -> None:
    for rank in range(2):
        one = dump(rank, 2, 40, "dtype", at=35)
        one["entries"] = one["entries"][10 * rank :]
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(one, 2))
    (problem,) = analysis(sorted(tmp_path.iterdir())).problems
    assert (problem.kind, problem.sequence) == ("dtype", 35)


def test_ranks_whose_dump_is_not_there_are_named(tmp_path: Path) -> None:
    paths = write(tmp_path, 4, 10, "missing")
    (problem,) = analysis(paths[:3]).problems
    assert problem.unread == (3,)


def test_json_dumps(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"dump_{rank}.json").write_text(json.dumps(dump(rank, 2, 8, "size")))
    (problem,) = analysis(sorted(tmp_path.iterdir())).problems
    assert (problem.kind, problem.sequence) == ("size", 8)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("missing_rank", ["missing"]), ("two_comms", ["missing", "missing"]), ("graph_missing", []), ("stuck_kernel", [])],
)
def test_dumps_of_real_hangs(name: str, kinds: list[str]) -> None:
    found = analysis(sorted((RECORDED / name).iterdir()))
    assert [p.kind for p in found.problems] == kinds
    if name == "missing_rank":
        assert (found.problems[0].sequence, found.problems[0].absent) == (21, (1,))
    if name == "stuck_kernel":
        assert found.in_flight == {"0": 1}


def test_a_member_that_never_came_to_a_group_is_missing_from_its_first_call(tmp_path: Path) -> None:
    for rank in range(3):
        one = dump(rank, 3, 4)
        one["pg_config"]["7"] = {"name": "7", "desc": "tp", "ranks": "[0, 1, 2]"}
        if rank != 1:
            one["entries"].append({**entry(1, done=False), "process_group": ("7", "tp")})
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(one, 2))
    (problem,) = analysis(sorted(tmp_path.iterdir())).problems
    assert (problem.kind, problem.description, problem.sequence, problem.absent) == ("missing", "tp", 1, (1,))


def test_a_ring_that_wrapped_around_says_nothing_of_groups_that_are_not_in_it(tmp_path: Path) -> None:
    for rank in range(2):
        one = dump(rank, 2, 4)
        one["pg_config"]["7"] = {"name": "7", "desc": "tp", "ranks": "[0, 1]"}
        if rank:
            one["entries"] = one["entries"][1:]
        else:
            one["entries"].append({**entry(1), "process_group": ("7", "tp")})
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(one, 2))
    assert analysis(sorted(tmp_path.iterdir())).problems == ()


def test_a_send_counts_ranks_within_its_group(tmp_path: Path) -> None:
    for rank in range(8):
        one = dump(rank, 8, 3)
        one["pg_config"]["3"] = {"name": "3", "desc": "pp", "ranks": "[2, 6]"}
        if rank == 2:
            one["entries"].append({**p2p(4, "send", 0, 1), "process_group": ("3", "pp")})
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(one, 2))
    (problem,) = analysis(sorted(tmp_path.iterdir())).problems
    assert (problem.sides[0].ranks, problem.sides[0].operation, problem.absent) == ((2,), "send 2 to 6", (6,))


def test_gloo_retires_what_it_finished() -> None:
    found = analysis(sorted((RECORDED / "gloo_dtype").iterdir()))
    assert [(p.kind, p.sequence, p.description) for p in found.problems] == [("dtype", 21, "default_pg")]
    assert all(side.state == "not completed" for side in found.problems[0].sides)


def test_how_long_a_call_waited_is_told_where_the_clock_makes_sense(tmp_path: Path) -> None:
    paths = write(tmp_path, 2, 5, "missing")
    for written_at, waited_s in ((1_795_977_507.5, 7.5), (1_000_000_000.0, None)):
        for path in paths:
            os.utime(path, (written_at, written_at))
        (side,) = analysis(paths).problems[0].sides
        assert side.waited_s == waited_s


class _Runs:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self._path}",)


def test_a_dump_that_would_run_a_command_is_refused_and_does_not(tmp_path: Path) -> None:
    paths = write(tmp_path / "dumps", 2, 5)
    mark = tmp_path / "ran"
    hostile = {**dump(2, 3, 1), "extra": _Runs(mark)}
    paths.append(tmp_path / "dumps" / "dump_2")
    paths[-1].write_bytes(pickle.dumps(hostile, 2))
    found = analysis(paths)
    assert found.ranks == (0, 1)
    assert "wants to load" in found.skipped[str(paths[-1])]
    assert not mark.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02Pexternal\n.",
        b"\x80\x02]q\x00}q\x01b.",
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x02" + b"]" * 2000 + b".",
        b"\x80\x02}q\x00.",
        b"{" + b"[" * 100_000,
        b"",
        b"\x80\x02N.",
    ],
)
def test_what_is_no_plain_dump_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        load(data)


def test_a_dump_that_asks_for_all_memory_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    paths = write(tmp_path, 2, 5)
    bomb = tmp_path / "dump_2"
    # A memo slot far away: the unpickler would allocate and clear 64 GiB for it.
    bomb.write_bytes(b"\x80\x02]r\xff\xff\xff\xff.")
    reading = analyze([Dump(str(p)) for p in (*paths, bomb)], workers=1)
    assert isinstance(reading, Ok)
    assert reading.value.ranks == (0, 1)
    assert str(bomb) in reading.value.skipped


def test_a_dump_with_values_that_no_recorder_writes_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    paths = write(tmp_path, 2, 5)
    endless: list[object] = []
    endless.append(endless)
    for rank, sizes in ((2, [[1 << 70]]), (3, endless), (4, [[object]])):
        odd = dump(rank, 5, 5)
        odd["entries"][2]["input_sizes"] = sizes
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(odd, 2))
    found = analysis([*paths, *(tmp_path / f"dump_{rank}" for rank in (2, 3, 4))])
    assert (found.ranks, sorted(found.skipped)) == ((0, 1), [str(tmp_path / f"dump_{rank}") for rank in (2, 3, 4)])


@pytest.mark.parametrize("at", [3, 9])
def test_of_several_ranks_with_other_states_the_first_number_counts(tmp_path: Path, at: int) -> None:
    for rank, done_until in enumerate((12, 12, 10, at)):
        one = dump(rank, 4, 0)
        one["entries"] = [entry(n, done=n < done_until) for n in range(1, 13)]
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(one, 2))
    (problem,) = analysis(sorted(tmp_path.iterdir())).problems
    assert (problem.kind, problem.sequence) == ("state", at)


def test_nothing_to_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "dump_0").write_bytes(b"hello")
    reading = analyze([Dump(str(tmp_path / "dump_0"))])
    assert isinstance(reading, Unavailable)
    assert "neither a pickle nor JSON" in reading.reason
