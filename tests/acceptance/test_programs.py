"""Programs that hang for one reason each, and their look-alikes: the right code on the right process."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.model.reading import Ok
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation, Snapshot
from tests.programs.harness import Program, held_lock, running, torch_python
from tests.support.diagnosing import SOURCES, describe, judge, look_at, without


@dataclass(frozen=True)
class Case:
    """A program with its options. `code` None: not hung, so nothing of severity 'error' may be said.

    `culprit` is the role in the program ('victim' is the rank that was chosen) that must be among the culprits.
    """

    program: str
    code: str | None
    culprit: str = "victim"
    options: dict[str, Any] = field(default_factory=dict)
    torch: bool = False
    styles: tuple[str, ...] = ("title", "torchrun")

    @property
    def name(self) -> str:
        return "-".join((self.program, *self.options.values()))


HANGS = (
    *(Case("event_nobody_sets", "GPD322", options={"kind": k}) for k in ("event", "future", "semaphore", "queue", "condition")),
    Case("lock_owner_stuck", "GPD326"),
    Case("gil_held", "GPD312", options={"thread": "helper"}),
    Case("gil_held", "GPD312", options={"thread": "main"}),
    Case("storage_blocked", "GPD313"),
    Case("file_lock", "GPD326", "holder", {"call": "flock", "holder": "alive", "does": "sleep"}),
    Case("file_lock", "GPD326", "holder", {"call": "lockf", "holder": "alive", "does": "sleep"}),
    Case("file_lock", "GPD307", options={"call": "flock", "holder": "dead"}),
    Case("file_lock", "GPD307", options={"call": "exists", "holder": "dead"}),
    Case("pipe_full", "GPD319", "reader"),
    Case("child_stuck", "GPD320", "child", {"how": "run", "child": "sleep"}),
    Case("child_stuck", "GPD320", "child", {"how": "communicate", "child": "pipe"}),
    Case("event_loop_blocked", "GPD323", "root", {"block": "sleep"}, styles=("title",)),
    Case("event_loop_blocked", "GPD323", "root", {"block": "recv"}, styles=("title",)),
    Case("queue_starved", "GPD328"),
    Case("busy_rank", "GPD316"),
)
LOOK_ALIKES = (
    Case("slow_lock_holder", None),
    Case("file_lock", None, options={"call": "flock", "holder": "alive", "does": "work"}),
    Case("file_lock", None, options={"call": "exists", "holder": "alive", "does": "work"}),
    Case("child_stuck", None, options={"how": "run", "child": "busy"}),
    Case("healthy_busy", None),
    Case("livelock", None),
)
TORCH = (
    Case("torch_rank_missing", "GPD301", torch=True),
    Case("torch_mismatched", "GPD302", torch=True),
    Case("torch_diverged", "GPD327", torch=True),
    Case("torch_rendezvous", "GPD308", torch=True),
    Case("torch_p2p_missing", "GPD325", torch=True),
    Case("torch_file_baton", "GPD307", torch=True),
    Case("torch_healthy_busy", None, torch=True),
)


def named(program: Program, report: Report) -> set[str]:
    """The roles of the culprits in the program."""
    roles = {pid: role for role, pid in program.pids.items()}
    return {roles.get(c.pid or -1, "?") for c in report.verdict.culprits}


def check(case: Case) -> None:
    rng = random.SystemRandom()
    ranks = rng.randint(2, 4)
    victim = rng.randrange(ranks)
    style = "torchrun" if case.torch else rng.choice(case.styles)
    python = torch_python() if case.torch else None
    with running(case.program, ranks=ranks, victim=victim, style=style, python=python, **case.options) as program:
        observation = look_at(program.root_pid)
    report = judge(observation, program.root_pid)
    how = f"{style}, {ranks} ranks, victim {victim}: {describe(report)}"
    if case.code is None:
        assert report.verdict.severity != "error", how
    else:
        assert report.verdict.code == case.code, how
        wanted = f"rank{victim}" if case.culprit == "victim" else case.culprit
        assert wanted in named(program, report), how
    for source in SOURCES:
        blind = judge(without(observation, source), program.root_pid)
        right = blind.verdict.code == case.code or blind.verdict.status == "insufficient" or blind.verdict.severity != "error"
        assert right, f"{source} withheld, {how} became {describe(blind)}"


@pytest.mark.parametrize("case", HANGS, ids=lambda c: c.name)
def test_hang(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", LOOK_ALIKES, ids=lambda c: c.name)
def test_look_alike(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("call", ["flock", "filelock"])
@pytest.mark.parametrize(("compiler", "code"), [("", "GPD326"), ("cc1plus", "GPD314")])
def test_a_lock_that_another_server_has(call: str, compiler: str, code: str, tmp_path: Path) -> None:
    """It sleeps in flock(2), or asks for the lock again and again; what the holder does decides what is said of it."""
    path = tmp_path / "norm.lock"
    with (
        held_lock(path, compiler) as pid,
        running("file_lock", style="torchrun", call=call, holder="outside", path=path) as program,
    ):
        observation = look_at(program.root_pid)
    report = judge(observation, program.root_pid)
    assert (report.verdict.code, report.verdict.culprits[0].pid) == (code, pid), describe(report)
    assert report.verdict.severity == ("info" if compiler else "warning")
    for source in SOURCES:
        blind = judge(without(observation, source), program.root_pid)
        assert blind.verdict.code in (code, None, "GPD109"), f"{source} withheld: {describe(blind)}"
        assert blind.verdict.severity != "error", f"{source} withheld: {describe(blind)}"


def test_a_rank_at_the_lock_of_another_server_is_not_idle_when_its_client_has_given_up(tmp_path: Path) -> None:
    path = tmp_path / "norm.lock"
    with held_lock(path) as pid, running("file_lock", style="title", call="flock", holder="outside", path=path) as program:
        observation = look_at(program.root_pid)
    deserted = Observation(snapshots=tuple(_without_clients(s) for s in observation.snapshots))
    report = judge(deserted, program.root_pid)
    assert (report.verdict.code, report.verdict.culprits[0].pid) == ("GPD326", pid), describe(report)


def _without_clients(snapshot: Snapshot) -> Snapshot:
    assert isinstance(snapshot.sockets, Ok)
    left = tuple(s for s in snapshot.sockets.value if s.family != "tcp" or s.state == "LISTEN")
    return msgspec.structs.replace(snapshot, sockets=msgspec.structs.replace(snapshot.sockets, value=left))


@pytest.mark.torch
@pytest.mark.parametrize("case", TORCH, ids=lambda c: c.name)
def test_torch(case: Case) -> None:
    check(case)
