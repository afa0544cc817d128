"""Every program comes to stand where it says, and its ranks wait for the victim."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpudiag.demo.procstate import session_members, state_of
from tests.programs.harness import Program, running, torch_python
from tests.support.processes import system_call, wait_until

RECEIVE = "recvfrom"

STANDS_IN: list[tuple[str, dict[str, Any], str, str]] = [
    ("event_nobody_sets", {"kind": "event"}, "rank", "futex"),
    ("event_nobody_sets", {"kind": "future"}, "rank", "futex"),
    ("event_nobody_sets", {"kind": "semaphore"}, "rank", "futex"),
    ("event_nobody_sets", {"kind": "queue"}, "rank", "futex"),
    ("event_nobody_sets", {"kind": "condition"}, "rank", "futex"),
    ("lock_owner_stuck", {"lock": "lock", "owner": "sleep"}, "rank", "futex"),
    ("lock_owner_stuck", {"lock": "rlock", "owner": "socket"}, "rank", "futex"),
    ("slow_lock_holder", {}, "rank", "futex"),
    ("gil_held", {"thread": "main"}, "rank", "clock_nanosleep"),
    ("gil_held", {"thread": "helper"}, "rank", "futex"),
    ("pipe_full", {"via": "pipe"}, "rank", "write"),
    ("pipe_full", {"via": "connection", "reader": "event"}, "rank", "write"),
    ("child_stuck", {"how": "run", "child": "sleep"}, "rank", "wait4"),
    ("child_stuck", {"how": "communicate", "child": "pipe"}, "rank", "read"),
    ("child_stuck", {"how": "run", "child": "busy"}, "rank", "wait4"),
    ("queue_starved", {"via": "connection"}, "rank", "read"),
    ("queue_starved", {"via": "pipe"}, "rank", "read"),
    ("queue_starved", {"via": "pipe"}, "helper", "read"),
    ("file_lock", {"call": "flock", "holder": "alive"}, "rank", "flock"),
    ("file_lock", {"call": "flock", "holder": "dead"}, "rank", "flock"),
    ("file_lock", {"call": "lockf", "holder": "alive", "does": "work"}, "rank", "fcntl"),
    ("event_loop_blocked", {"block": "sleep"}, "root", "clock_nanosleep"),
    ("event_loop_blocked", {"block": "recv"}, "root", RECEIVE),
]
"""Program, options, who, and the system call that thread is asleep in. 'rank' is the victim."""

TORCH_STANDS_IN = [
    ("torch_rank_missing", "clock_nanosleep", "futex"),
    ("torch_mismatched", "futex", "futex"),
    ("torch_diverged", "futex", "futex"),
    ("torch_p2p_missing", "clock_nanosleep", "futex"),
    ("torch_file_baton", "clock_nanosleep", "futex"),
    ("torch_rendezvous", "clock_nanosleep", "clock_nanosleep"),
]
"""Program, system call of the victim's main thread, system call of the others'."""


def others_wait(program: Program, victim: int) -> bool:
    return all(system_call(pid) == RECEIVE for rank, pid in program.rank_pids.items() if rank != victim)


@pytest.mark.parametrize(("name", "options", "who", "call"), STANDS_IN)
def test_where_it_stands(name: str, options: dict[str, Any], who: str, call: str) -> None:
    with running(name, ranks=3, victim=1, **options) as program:
        victim = program.pids["rank1" if who == "rank" else who]
        if name == "gil_held":
            # Whoever asks for the interpreter lock wakes up every 5 ms to ask again, and may be met awake.
            wait_until(lambda: system_call(victim) == call, f"pid {victim} in {call}")
        else:
            assert system_call(victim) == call
        if who != "root":
            assert others_wait(program, victim=1)
        assert program.client is not None
        assert system_call(program.client.pid) == RECEIVE
    assert session_members(program.root_pid) == []


def test_ranks_of_a_launcher_have_its_environment_and_no_client() -> None:
    with running("event_nobody_sets", ranks=3, victim=2, style="torchrun") as program:
        assert system_call(program.pids["rank2"]) == "futex"
        assert others_wait(program, victim=2)
        assert program.client is None
        for rank, pid in program.rank_pids.items():
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            assert {b"RANK=%d" % rank, b"LOCAL_RANK=%d" % rank, b"WORLD_SIZE=3", b"MASTER_ADDR=127.0.0.1"} <= set(environment)


def test_a_dead_holder_of_a_flock_left_it_to_its_child() -> None:
    with running("file_lock", call="flock", holder="dead") as program:
        holder, heir = program.fact("rank0", "holder_pid"), program.fact("rank0", "heir_pid")
        assert state_of(holder) == "X"
        inode = os.stat(program.fact("rank0", "path")).st_ino
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        holders = {int(line[4]) for line in locks if line[1] == "FLOCK" and line[5].endswith(f":{inode}")}
        assert holder in holders
        assert program.fact("rank0", "path") in {os.readlink(entry.path) for entry in os.scandir(f"/proc/{heir}/fd")}


@pytest.mark.parametrize("holder", ["alive", "dead"])
def test_a_lock_file_is_open_in_a_living_holder_only(holder: str) -> None:
    with running("file_lock", call="exists", holder=holder) as program:
        path = program.fact("rank0", "path")
        open_in = [
            pid
            for pid in session_members(program.root_pid)
            if path in {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}
        ]
        assert open_in == ([program.pids["holder"]] if holder == "alive" else [])


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="mounting needs root and /dev/fuse")
def test_a_reader_of_a_dead_storage_server_is_in_state_d_and_can_be_killed() -> None:
    with running("storage_blocked", ranks=2, victim=1) as program:
        assert state_of(program.pids["rank1"]) == "D"
        assert system_call(program.pids["rank1"]) == "read"
    assert session_members(program.root_pid) == []


def test_a_busy_rank_burns_time_and_the_other_waits() -> None:
    with running("busy_rank", ranks=2, victim=0) as program:
        wait_until(lambda: state_of(program.pids["rank0"]) == "R", "the busy rank running")
        assert others_wait(program, victim=0)


def test_a_healthy_group_answers_and_a_livelocked_one_does_not() -> None:
    with running("healthy_busy", ranks=2) as healthy:
        asker = healthy.client
        assert asker is not None
        before = context_switches(asker.pid)
        wait_until(lambda: context_switches(asker.pid) > before + 20, "the client being answered")
    with running("livelock", ranks=2) as livelock:
        client = livelock.client
        assert client is not None
        wait_until(lambda: system_call(client.pid) == RECEIVE, "the client waiting")
        switches = context_switches(client.pid)
        ours = context_switches(livelock.pids["rank0"])
        wait_until(lambda: context_switches(livelock.pids["rank0"]) > ours + 100, "the ranks at work")
        assert context_switches(client.pid) == switches


def context_switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


@pytest.mark.torch
@pytest.mark.skipif(torch_python() is None, reason="needs an interpreter with torch")
@pytest.mark.parametrize(("name", "victims", "others"), TORCH_STANDS_IN)
def test_where_a_torch_group_stands(name: str, victims: str, others: str) -> None:
    with running(name, ranks=2, victim=1, style="torchrun", python=torch_python()) as program:
        assert system_call(program.pids["rank1"]) == victims
        assert system_call(program.pids["rank0"]) == others


@pytest.mark.torch
@pytest.mark.skipif(torch_python() is None, reason="needs an interpreter with torch")
def test_a_healthy_torch_group_is_at_work() -> None:
    with running("torch_healthy_busy", style="torchrun", python=torch_python()) as program:
        before = context_switches(program.pids["rank0"])
        wait_until(lambda: context_switches(program.pids["rank0"]) > before + 100, "all-reduces")


@pytest.mark.torch
@pytest.mark.skipif(torch_python() is None, reason="needs an interpreter with torch")
def test_a_rank_that_ended_before_it_joined() -> None:
    with running("torch_rendezvous", ranks=2, victim=1, absent="ended", style="torchrun", python=torch_python()) as program:
        assert state_of(program.pids["rank1"]) in "ZX"
