"""A look carries the communicators of a rank, and says when it was told to do without."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpudiag.collect.look import LookOptions, look, observe
from gpudiag.collect.process_reader import WITHHELD, Source
from gpudiag.model.reading import NOT_ASKED, Ok
from tests.nccl.targets import fake, slot


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
