"""Faults of processes that are started for it: the demo's scenarios, the test programs, and torch over gloo."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpudiag.demo.run import start
from gpudiag.rules.hang.no_progress_while_running import MIN_AGE_S
from tests.demo.renamed import rename_scripts
from tests.faults.case import Culprit, Fault, Ground, Stage, Staged, Variation
from tests.programs.harness import held_lock, running, torch_python


def demo(scenario: str, *, victim: bool = True) -> Stage:
    """A scenario of the demo with random size, victim and names."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        copy = rename_scripts(vary.directory / "copy", vary.rng)
        seed, ranks = vary.rng.randrange(1 << 30), vary.rng.randint(2, 6)
        with start(scenario, ranks=ranks, seed=seed, scripts=copy.scripts, names=copy.names) as server:
            server.wait_until_stuck()
            who = Culprit(rank=server.victim_rank) if victim else Culprit()
            yield Staged(("attach", str(server.root_pid)), who)

    return stage


def program(name: str, culprit: str = "victim", *, among: bool = False, torch: bool = False, **options: Any) -> Stage:
    """A program of tests/programs with random size and victim. `culprit` is the role in it that is to blame."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        ranks = vary.rng.randint(2, 4)
        victim = vary.rng.randrange(ranks)
        style = "torchrun" if torch or (name != "event_loop_blocked" and vary.rng.random() < 0.5) else "title"
        python = torch_python() if torch else None
        with running(name, ranks=ranks, victim=victim, style=style, python=python, quiet=True, **options) as running_program:
            role = f"rank{victim}" if culprit == "victim" else culprit
            who = Culprit(pid=running_program.pids[role], among=among) if culprit else Culprit()
            yield Staged(("attach", str(running_program.root_pid)), who)

    return stage


def locked_elsewhere(call: str, compiler: str = "") -> Stage:
    """A rank wants a lock that a process outside of the server has, with a compiler at work below it or without one."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        path = vary.directory / f"{vary.rng.randrange(1 << 30)}.lock"
        with held_lock(path, compiler) as pid:
            options: dict[str, Any] = {"style": "torchrun", "quiet": True, "holder": "outside", "call": call, "path": path}
            with running("file_lock", ranks=vary.rng.randint(2, 4), **options) as server:
                yield Staged(("attach", str(server.root_pid)), Culprit(pid=pid))

    return stage


def grow_old() -> None:
    """A request has to be this old before it is said that nobody answers it: long prompts take their time."""
    time.sleep(MIN_AGE_S + 1.0)


def silent_for_long(name: str) -> Stage:
    """A program that takes a request and has not answered it for long."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        with running(name, ranks=vary.rng.randint(2, 4), quiet=True) as running_program:
            grow_old()
            yield Staged(("attach", str(running_program.root_pid), "--confirm"), Culprit())

    return stage


def entry(name: str, code: str | None, planted: str, stage: Stage, ground: Ground = "processes", needs: Any = None) -> Fault:
    return Fault(name=name, planted=planted, code=code, ground=ground, stage=stage, live=True, needs=needs)


FAULTS = (
    entry("demo-stale-lock", "GPD307", "the lock file of a killed build lies there; a rank waits for it", demo("stale-lock")),
    entry("demo-lock-cycle", "GPD306", "two threads of a rank hold one lock each and want the other's", demo("lock-cycle")),
    entry("demo-rank-missing", "GPD301", "a rank takes a branch of its own, away from the all-reduce", demo("rank-missing")),
    entry("demo-rank-dead", "GPD304", "a rank is killed; its sockets stay open in another process", demo("rank-dead")),
    entry("demo-rank-stopped", "GPD305", "a rank gets SIGSTOP", demo("rank-stopped")),
    entry("demo-queue-to-nobody", "GPD309", "a rank reads a pipe whose writer was killed", demo("queue-to-nobody")),
    entry(
        "event-nobody-sets", "GPD322", "a rank waits for an event that nothing sets", program("event_nobody_sets", kind="event")
    ),
    entry(
        "future-nobody-sets", "GPD322", "a rank waits for a future without a task", program("event_nobody_sets", kind="future")
    ),
    entry(
        "semaphore-nobody-gives",
        "GPD322",
        "a rank waits for a semaphore that nobody gives back",
        program("event_nobody_sets", kind="semaphore"),
    ),
    entry("lock-owner-asleep", "GPD326", "a thread sleeps with the lock that its rank wants", program("lock_owner_stuck")),
    entry(
        "flock-holder-asleep",
        "GPD326",
        "a helper sleeps with a flock that a rank wants",
        program("file_lock", "holder", call="flock", holder="alive", does="sleep"),
    ),
    entry(
        "fcntl-holder-asleep",
        "GPD326",
        "a helper sleeps with an fcntl lock that a rank wants",
        program("file_lock", "holder", call="lockf", holder="alive", does="sleep"),
    ),
    entry(
        "lock-held-elsewhere",
        "GPD326",
        "a process of another server has the lock that a rank asks for again and again",
        locked_elsewhere("filelock"),
    ),
    entry("gil-held-by-helper", "GPD312", "a thread sleeps in C with the interpreter lock", program("gil_held", thread="helper")),
    entry(
        "gil-held-by-main", "GPD312", "the main thread sleeps in C with the interpreter lock", program("gil_held", thread="main")
    ),
    entry(
        "storage-blocked",
        "GPD313",
        "a rank reads a file of a file system that never answers",
        program("storage_blocked"),
        needs="fuse",
    ),
    entry("pipe-full", "GPD319", "a rank writes to a full pipe; the reader sleeps", program("pipe_full", "reader")),
    entry(
        "child-asleep",
        "GPD320",
        "a rank waits for a child that sleeps",
        program("child_stuck", "child", how="run", child="sleep"),
    ),
    entry(
        "child-reads-itself",
        "GPD320",
        "a rank waits for a child that reads a pipe only it can write",
        program("child_stuck", "child", how="communicate", child="pipe"),
    ),
    entry(
        "event-loop-sleeps",
        "GPD323",
        "a handler of the root's event loop sleeps",
        program("event_loop_blocked", "root", block="sleep"),
    ),
    entry(
        "event-loop-receives",
        "GPD323",
        "a handler of the root's event loop blocks in recv",
        program("event_loop_blocked", "root", block="recv"),
    ),
    entry(
        "queue-starved",
        "GPD328",
        "a rank waits for a helper's reply to a job it never sent",
        program("queue_starved", among=True),
    ),
    entry("rank-busy", "GPD316", "a rank computes in Python for ever while the others reduce", program("busy_rank")),
    entry(
        "livelock",
        "GPD321",
        "all ranks work, ask each other to try again, and answer nothing for 30 s",
        silent_for_long("livelock"),
    ),
    entry(
        "gloo-mismatch",
        "GPD302",
        "a rank of a gloo group broadcasts, the others reduce",
        program("torch_mismatched", among=True, torch=True),
        "gloo",
        "torch",
    ),
    entry(
        "gloo-diverged",
        "GPD327",
        "a rank is in a checkpoint's barrier, the others in a step's all-reduce",
        program("torch_diverged", among=True, torch=True),
        "gloo",
        "torch",
    ),
    entry(
        "gloo-rendezvous",
        "GPD308",
        "a rank never calls init_process_group",
        program("torch_rendezvous", torch=True),
        "gloo",
        "torch",
    ),
    entry(
        "gloo-p2p-missing",
        "GPD325",
        "a rank sleeps and never sends what the next one receives",
        program("torch_p2p_missing", torch=True),
        "gloo",
        "torch",
    ),
    entry(
        "torch-file-baton",
        "GPD307",
        "a rank waits in torch's FileBaton for the lock of a killed build",
        program("torch_file_baton", torch=True),
        "gloo",
        "torch",
    ),
)

LOOK_ALIKES = (
    entry("demo-slow-compile", None, "a rank waits for a compiler that works", demo("slow-compile", victim=False)),
    entry("demo-idle", None, "nothing is asked of the server", demo("idle", victim=False)),
    entry("slow-lock-holder", None, "a rank waits for a lock whose holder works through a list", program("slow_lock_holder", "")),
    entry(
        "flock-holder-works",
        None,
        "a rank waits for a flock whose holder works",
        program("file_lock", "", call="flock", holder="alive", does="work"),
    ),
    entry(
        "lock-file-of-a-build",
        None,
        "a rank waits for a lock file whose builder works",
        program("file_lock", "", call="exists", holder="alive", does="work"),
    ),
    entry(
        "cache-built-elsewhere",
        None,
        "a rank asks again and again for the lock of another server, which compiles",
        locked_elsewhere("filelock", "cc1plus"),
    ),
    entry("child-works", None, "a rank waits for a child that computes", program("child_stuck", "", how="run", child="busy")),
    entry("long-answer", None, "an answer is not streamed and takes more than 30 s", silent_for_long("long_answer")),
    entry("healthy-busy", None, "all ranks reduce and answer as fast as they can", program("healthy_busy", "")),
    entry(
        "gloo-healthy-busy",
        None,
        "all ranks of a gloo group reduce as fast as they can",
        program("torch_healthy_busy", "", torch=True),
        "gloo",
        "torch",
    ),
)
