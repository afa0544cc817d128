"""Python stacks through py-spy: one run for each process, several at a time, each with a deadline."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gpudiag.collect import procfs
from gpudiag.collect.commands import IMPATIENCE, NOT_STARTED, Finished, run_all
from gpudiag.collect.merge import with_locals_of
from gpudiag.collect.pyspy_errors import classify
from gpudiag.collect.pyspy_json import parse_dump
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.stack import PyStack

StackMode = Literal["nonblocking", "pause", "native"]
StackReading: TypeAlias = Ok[tuple[PyStack, ...]] | Unavailable | Failed
ExistingPaths = Callable[[int, AbstractSet[str]], AbstractSet[str]]

_RETRIES = 2
"""A non-blocking read may be torn by a thread that runs meanwhile."""
_NATIVE_FACTOR = 3


class Dumps(NamedTuple):
    """Stacks by pid, and the seconds for which a target was held stopped.

    `torn` tells by pid why a process could not be read while it was stopped, and was read while it ran instead.
    """

    stacks: dict[int, StackReading]
    stopped_s: float
    torn: dict[int, Unavailable | Failed]


def find_py_spy() -> str | None:
    """py-spy of gpudiag's own environment, else the one on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def dump_stacks(
    pids: Sequence[int],
    *,
    mode: StackMode,
    with_locals: AbstractSet[int],
    deadline_s: float,
    existing: ExistingPaths,
) -> Dumps:
    """Dump every process of `pids`; locals are read for those in `with_locals`.

    'nonblocking' neither stops nor signals a target. 'pause' and 'native' stop it while py-spy reads; what that took is
    measured, and locals are read before, without stopping it. Where that is refused or fails, the stacks are those of
    'nonblocking'. `existing` tells which path-like strings exist in the root of a pid; all other strings are dropped.
    'native' has three times the deadline: py-spy reads symbols of big libraries.
    """
    program = find_py_spy()
    if program is None:
        missing = Unavailable(reason="py-spy is not installed", help=f"{sys.executable} -m pip install py-spy")
        return Dumps(dict.fromkeys(pids, missing), 0.0, {})
    dumper = _Dumper(program, deadline_s, existing)
    if mode == "nonblocking":
        return Dumps(dumper.dump(pids, mode, with_locals), 0.0, {})
    moving = dumper.dump([pid for pid in pids if pid in with_locals], "nonblocking", with_locals)
    still = dumper.dump(pids, mode, frozenset())
    refused = {pid: why for pid, why in still.items() if not isinstance(why, Ok)}
    moving |= dumper.dump([pid for pid in refused if pid not in moving], "nonblocking", frozenset())
    stacks = {pid: _joined(reading, moving.get(pid)) for pid, reading in still.items()}
    return Dumps(stacks, dumper.stopped_s, {pid: why for pid, why in refused.items() if isinstance(stacks[pid], Ok)})


def _joined(still: StackReading, moving: StackReading | None) -> StackReading:
    """The stacks of the stopped process with the locals of the running one, or those of the one that could be read."""
    if not isinstance(moving, Ok):
        return still
    if not isinstance(still, Ok):
        return moving
    return msgspec.structs.replace(still, value=with_locals_of(still.value, moving.value))


class _Dumper:
    """Runs py-spy with retries, and adds up the time for which that stopped a target.

    Once it was late with a process, it has a quarter of the patience with whatever it is asked after that.
    """

    def __init__(self, program: str, deadline_s: float, existing: ExistingPaths) -> None:
        self.stopped_s = 0.0
        self._late = False
        self._program = program
        self._deadline_s = deadline_s
        self._existing = existing

    def dump(self, pids: Sequence[int], mode: StackMode, with_locals: AbstractSet[int]) -> dict[int, StackReading]:
        found: dict[int, StackReading] = {}
        left = list(pids)
        for _ in range(1 + _RETRIES):
            commands = {pid: _command(self._program, pid, mode, with_locals=pid in with_locals) for pid in left}
            batch = run_all(commands, deadline_s=self._deadline_of(mode), stopping=mode != "nonblocking")
            self.stopped_s += batch.stopped_s
            self._late = self._late or any(run.late for run in batch.finished.values())
            for pid, run in batch.finished.items():
                found[pid] = self._reading(pid, run)
            left = [pid for pid in left if isinstance(found[pid], Failed) and not batch.finished[pid].late]
            if not left:
                break
        return found

    def _deadline_of(self, mode: StackMode) -> float:
        deadline_s = self._deadline_s / IMPATIENCE if self._late else self._deadline_s
        return deadline_s * (_NATIVE_FACTOR if mode == "native" else 1)

    def _reading(self, pid: int, run: Finished) -> StackReading:
        if run.late and run.status == NOT_STARTED:
            return Failed(error=f"deadline: py-spy hung with other processes, and had no time left for process {pid}")
        if run.late:
            return Failed(error=f"deadline: py-spy was not done with process {pid} after {run.took_s:.1f} s")
        if run.status == NOT_STARTED:
            return Failed(error=f"py-spy cannot be started: {procfs.text(run.stderr)}")
        if run.status != 0:
            return classify(pid, procfs.text(run.stderr))
        try:
            stacks = parse_dump(run.stdout, lambda paths: self._existing(pid, paths))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            return Failed(error=f"py-spy printed no complete dump of process {pid}: {error}")
        return Ok(value=stacks, at=time.time(), took_s=run.took_s)


def _command(program: str, pid: int, mode: StackMode, *, with_locals: bool) -> list[str]:
    command = [program, "dump", "--json", "--full-filenames", "--pid", str(pid)]
    if with_locals:
        command.append("-lll")
    if mode == "nonblocking":
        return [*command, "--nonblocking"]
    if mode == "native":
        command.append("--native")
    return [sys.executable, "-P", "-m", "gpudiag.collect.tracer", str(pid), "--", *command]
