"""Every scenario really comes to where it says, and nothing of it is left afterwards."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudiag.demo.plan import draw, scenario_named
from gpudiag.demo.procstate import session_members, stat_fields, state_of
from gpudiag.demo.run import Running, start
from gpudiag.demo.scenarios import DEFAULT_SCENARIO, SCENARIOS
from gpudiag.errors import UsageError
from tests.demo.renamed import Renamed, functions_and_classes
from tests.support.processes import system_call, title, wait_until

NAMES = [scenario.name for scenario in SCENARIOS]
CPU_TICKS = slice(11, 13)
RECEIVE = "recvfrom"
RANDOM = random.SystemRandom()


def cpu_ticks(pid: int) -> int:
    fields = stat_fields(pid)
    assert fields is not None
    return sum(map(int, fields[CPU_TICKS]))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def victim_of(run: Running) -> int:
    assert run.victim_pid is not None
    return run.victim_pid


def check_stale_lock(run: Running) -> None:
    assert run.lock_path is not None
    assert run.lock_path.exists()
    assert state_of(victim_of(run)) in "SR"


def check_lock_cycle(run: Running) -> None:
    victim = victim_of(run)
    assert system_call(victim) == "futex"
    assert cpu_ticks(victim) < 200


def check_rank_missing(run: Running) -> None:
    assert system_call(victim_of(run)) == "clock_nanosleep"


def check_rank_dead(run: Running) -> None:
    assert state_of(victim_of(run)) in "ZX"


def check_rank_stopped(run: Running) -> None:
    assert state_of(victim_of(run)) == "T"


def check_queue_to_nobody(run: Running) -> None:
    victim = victim_of(run)
    assert system_call(victim) == "read"
    pipe = os.readlink(f"/proc/{victim}/fd/{_first_argument(victim)}")
    ends = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{victim}/fd")]
    assert ends.count(pipe) == 2, "the victim holds both ends"
    living = [title(pid) for pid in session_members(run.root_pid) if state_of(pid) not in "ZX"]
    assert sum("loader" in name for name in living) == run.plan.ranks - 1


def check_slow_compile(run: Running) -> None:
    compiler = next(pid for pid in reversed(session_members(run.root_pid)) if title(pid).startswith(("cicc", "ptxas", "cc1plus")))
    before = cpu_ticks(compiler)
    wait_until(lambda: cpu_ticks(compiler) > before, "the compiler at work")


def check_idle(run: Running) -> None:
    assert run.victim_rank is None
    assert run.client_pid is None


CHECKS: dict[str, Callable[[Running], None]] = {
    "stale-lock": check_stale_lock,
    "lock-cycle": check_lock_cycle,
    "rank-missing": check_rank_missing,
    "rank-dead": check_rank_dead,
    "rank-stopped": check_rank_stopped,
    "queue-to-nobody": check_queue_to_nobody,
    "slow-compile": check_slow_compile,
    "idle": check_idle,
}


def _first_argument(pid: int) -> int:
    return int(Path(f"/proc/{pid}/syscall").read_text().split()[1], 16)


def survivors_wait(run: Running) -> bool:
    return all(system_call(pid) == RECEIVE for rank, pid in run.rank_pids.items() if rank != run.victim_rank)


@pytest.mark.parametrize("name", NAMES)
def test_the_victim_stands_where_the_scenario_says_and_the_others_wait(name: str) -> None:
    ranks, seed = RANDOM.randint(2, 8), RANDOM.randrange(2**32)
    with start(name, ranks=ranks, seed=seed) as run:
        run.wait_until_stuck()
        assert sorted(run.rank_pids) == list(range(ranks)), f"seed {seed}"
        CHECKS[name](run)
        if name != "idle":
            assert survivors_wait(run), f"seed {seed}"
            assert run.client_pid is not None
            assert system_call(run.client_pid) == RECEIVE
            assert run.client_pid not in session_members(run.root_pid)


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_under_other_names_does_the_same(name: str, renamed: Renamed) -> None:
    with start(name, scripts=renamed.scripts, names=renamed.names) as run:
        run.wait_until_stuck()
        CHECKS[name](run)
        assert title(run.root_pid).startswith(f"{renamed.names.prefix}::")
        if run.lock_path:
            assert run.lock_path.name == renamed.names.lock


def test_a_copy_keeps_no_function_and_no_file_name(renamed: Renamed) -> None:
    assert functions_and_classes() - renamed.words.keys() == set()
    assert functions_and_classes(renamed.scripts) & functions_and_classes() == set()
    assert {path.stem for path in renamed.scripts.glob("*.py")} & renamed.words.keys() == set()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left(name: str, tmp_path: Path) -> None:
    with start(name, directory=tmp_path) as run:
        run.wait_until_stuck()
        client = run.client_pid
    assert session_members(run.root_pid) == []
    assert client is None or state_of(client) == "X"
    assert list(tmp_path.iterdir()) == []


def test_a_visitor_keeps_its_connection_to_an_idle_server() -> None:
    seed = next(seed for seed in range(100) if draw(scenario_named("idle"), ranks=2, victim=None, seed=seed).visited)
    with start("idle", ranks=2, seed=seed) as run:
        run.wait_until_stuck()
        assert run.visitor is not None
        connections = Path(f"/proc/{run.visitor.pid}/net/tcp").read_text().splitlines()
        port = f":{run.port:04X}"
        assert [line for line in connections if line.split()[2].endswith(port) and line.split()[3] == "01"]
        run.ask()
    assert run.visitor.poll() is not None


def test_ranks_have_as_many_more_threads_as_asked_for() -> None:
    with start("rank-missing", ranks=2, extra_threads=50) as run:
        run.wait_until_stuck()
        assert all(len(os.listdir(f"/proc/{pid}/task")) >= 50 for pid in run.rank_pids.values())


def test_an_idle_server_answers_again() -> None:
    with start("idle", ranks=3) as run:
        run.wait_until_stuck()
        run.ask()
        run.ask()


def test_what_varies_comes_from_the_seed() -> None:
    scenario = scenario_named(DEFAULT_SCENARIO)
    plans = [draw(scenario, ranks=4, victim=None, seed=seed) for seed in range(40)]
    assert plans == [draw(scenario, ranks=4, victim=None, seed=seed) for seed in range(40)]
    assert {plan.victim for plan in plans} == {0, 1, 2, 3}
    for field in ("start_order", "topology", "family", "polling", "fault_step", "variant"):
        assert len({getattr(plan, field) for plan in plans}) > 1, field


@pytest.mark.parametrize(("ranks", "victim"), [(1, None), (9, None), (4, 4), (4, -1)])
def test_a_rank_out_of_range_is_refused(ranks: int, victim: int | None) -> None:
    with pytest.raises(UsageError), start(DEFAULT_SCENARIO, ranks=ranks, victim=victim):
        pass


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(UsageError, match="no-such-thing"), start("no-such-thing"):
        pass
