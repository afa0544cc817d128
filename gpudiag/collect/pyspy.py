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
from gpudiag.collect.commands import Finished, run_all
from gpudiag.collect.pyspy_errors import classify
from gpudiag.collect.pyspy_json import parse_dump
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.stack import PyStack

StackMode = Literal["nonblocking", "pause", "native"]
StackReading: TypeAlias = Ok[tuple[PyStack, ...]] | Unavailable | Failed
ExistingPaths = Callable[[int, AbstractSet[str]], AbstractSet[str]]

_RETRIES = 2
"""A non-blocking read may be torn by a thread that runs meanwhile."""


class Dumps(NamedTuple):
    """Stacks by pid, and the seconds for which a target was held stopped."""

    stacks: dict[int, StackReading]
    stopped_s: float


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
    measured. `existing` tells which path-like strings exist in the root of a pid; other strings are dropped.
    """
    program = find_py_spy()
    if program is None:
        missing = Unavailable(reason="py-spy is not installed", help="pip install py-spy")
        return Dumps(dict.fromkeys(pids, missing), 0.0)
    found: dict[int, StackReading] = {}
    stopped_s = 0.0
    left = list(pids)
    for _ in range(1 + _RETRIES):
        commands = {pid: _command(program, pid, mode, with_locals=pid in with_locals) for pid in left}
        batch = run_all(commands, deadline_s=deadline_s, stopping=mode != "nonblocking")
        stopped_s += batch.stopped_s
        for pid, run in batch.finished.items():
            found[pid] = _reading(pid, run, deadline_s, existing)
        left = [pid for pid in left if isinstance(found[pid], Failed) and not batch.finished[pid].late]
        if not left:
            break
    return Dumps(found, stopped_s)


def _command(program: str, pid: int, mode: StackMode, *, with_locals: bool) -> list[str]:
    command = [program, "dump", "--json", "--full-filenames", "--pid", str(pid)]
    if with_locals:
        command.append("-lll")
    if mode == "nonblocking":
        return [*command, "--nonblocking"]
    if mode == "native":
        command.append("--native")
    return [sys.executable, "-P", "-m", "gpudiag.collect.tracer", str(pid), "--", *command]


def _reading(pid: int, run: Finished, deadline_s: float, existing: ExistingPaths) -> StackReading:
    if run.late:
        return Failed(error=f"deadline: py-spy took longer than {deadline_s:g} s for process {pid}")
    if run.status != 0:
        return classify(pid, procfs.text(run.stderr))
    try:
        stacks = parse_dump(run.stdout, lambda paths: existing(pid, paths))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        return Failed(error=f"py-spy printed no complete dump of process {pid}: {error}")
    return Ok(value=stacks, at=time.time(), took_s=run.took_s)
