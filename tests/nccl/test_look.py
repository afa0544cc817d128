"""A look carries the communicators of a rank, and says when it was told to do without."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpudiag.collect.deadline import Guard
from gpudiag.collect.guard_protocol import Reply, Request
from gpudiag.collect.look import LookOptions, look, observe
from gpudiag.collect.nccl_request import NcclRequest
from gpudiag.collect.process_reader import WITHHELD, Source
from gpudiag.model.reading import NOT_ASKED, Failed, Ok
from tests.collect.helpers import one, state
from tests.nccl.targets import fake, slot
from tests.support.processes import wait_until


def test_both_looks_carry_communicators_and_the_launch_between_them_shows(tmp_path: Path) -> None:
    with fake(tmp_path, "2.28.9", [slot(7, 1, (0, 0, 0, 0, 20))]) as target:
        before = look([target.pid], LookOptions(stacks="none"))
        target.launch(0, 4)
        after = look([target.pid], LookOptions(stacks="none"))
    counts = []
    for snapshot in (before, after):
        process = snapshot.process(target.pid)
        assert process is not None
        assert isinstance(process.nccl, Ok)
        ((communicator,),) = (n.communicators for n in process.nccl.value)
        counts.append(communicator.by_name()["AllReduce"])
    assert counts == [20, 21]


@pytest.mark.parametrize(("broken", "runs", "asked"), [(True, False, 1), (True, True, 2), (False, False, 2)])
def test_a_process_that_had_no_communicator_and_did_not_run_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool, runs: bool, asked: int
) -> None:
    requests: list[int] = []
    real = Guard.ask

    def noted(self: Guard, all_: Sequence[Request], kind: type[Reply]) -> list[Reply | Failed]:
        requests.extend(r.pid for r in all_ if isinstance(r, NcclRequest))
        return real(self, all_, kind)

    monkeypatch.setattr(Guard, "ask", noted)
    with fake(tmp_path, "2.28.9", [slot() | ({"broken": "magic"} if broken else {})]) as target:
        wait_until(lambda: state(target.pid) == "S", "the fake asleep")

        def meanwhile(*_: object) -> None:
            if runs:
                target.launch(0, 4)
                wait_until(lambda: state(target.pid) == "S", "the fake asleep again")

        seen = observe([target.pid], LookOptions(stacks="none"), interval_s=0.1, meanwhile=meanwhile)
    assert requests == [target.pid] * asked
    for snapshot in seen.snapshots:
        nccl = one(snapshot, target.pid).nccl
        assert isinstance(nccl, Ok)
        assert [len(copy.communicators) for copy in nccl.value] == [0 if broken else 1]


def test_withheld_and_never_there_are_told_apart(tmp_path: Path) -> None:
    sources: tuple[Source, ...] = ("nccl", "memory")
    with fake(tmp_path, "2.28.9", [slot()]) as target:
        for source in sources:
            options = LookOptions(stacks="none", withhold=frozenset({source}))
            process = observe([target.pid], options, samples=1).last.process(target.pid)
            assert process is not None
            assert process.nccl == WITHHELD
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as plain:
        process = look([plain.pid], LookOptions(stacks="none")).process(plain.pid)
        plain.kill()
    assert process is not None
    assert process.nccl == NOT_ASKED
