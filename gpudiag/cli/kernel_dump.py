"""attach --kernel-dump: it ends processes, so it is said and asked before it is done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpudiag.cli import target
from gpudiag.cli.output import say
from gpudiag.errors import UsageError
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.report import Verdict
from gpudiag.model.server import Server
from gpudiag.model.snapshot import Observation

if TYPE_CHECKING:
    from gpudiag.session.kernels import Plan

_WIDTH = 78


def check_flags(*, kernel_dump: bool, yes: bool, every: bool) -> None:
    """Refuse what cannot end well before anything is looked at. Raises UsageError."""
    if not kernel_dump:
        if yes:
            raise UsageError("--yes answers the question of --kernel-dump, which was not given", help="gpudiag attach PID")
        return
    if every:
        raise UsageError(
            "--kernel-dump and --all contradict each other: it ends servers", help="gpudiag attach PID --kernel-dump"
        )
    if not yes and not target.can_ask():
        raise UsageError(
            "--kernel-dump ends the ranks that hang, and there is no terminal to ask at",
            help="gpudiag attach PID --kernel-dump --yes",
        )


def with_kernels(observation: Observation, server: Server, known: Verdict, *, yes: bool) -> Observation:
    """The observation with the dumps of its ranks, or with the reason why there are none. `known` is the verdict before it."""
    from gpudiag.session import kernels

    plan = kernels.plan(observation, server)
    if plan.refusal is not None:
        return kernels.without_dump(observation, plan.refusal)
    sure = f" ({known.confidence})" if known.confidence else ""
    say(f"known so far: {known.code or known.status}: {known.title}{sure}")
    _announce(observation, plan)
    if not yes and not click.confirm("gpudiag: go on?", default=False, err=True):
        return kernels.without_dump(observation, Unavailable(reason="not dumped: the answer was no", help=""))
    said = kernels.dump(observation, plan)
    _tell(said)
    return said


def _announce(observation: Observation, plan: Plan) -> None:
    """Who, what it costs, and where the dumps go."""
    from gpudiag.session.kernels import find_debugger

    count = len(plan.targets)
    say(f"--kernel-dump has {count} process{'es' if count != 1 else ''} write a CUDA core dump, and that ends")
    say("each that has a kernel on its GPU (SIGABRT), and with it the server and its requests:")
    for rank, armed in plan.targets:
        process = observation.last.process(armed.process.pid) or armed.process
        head = f"  {f'rank {rank}' if rank is not None else 'a rank'}  pid {process.pid}  "
        say(head + process.title[: max(16, _WIDTH - len(head) - len("gpudiag: "))])
    say(f"about 110 MB each, kept: {', '.join(dict.fromkeys(armed.shown for _, armed in plan.targets))}")
    if find_debugger() is None:
        say("cuda-gdb is not on this machine: the dumps must be read where a CUDA toolkit is")
    sys.stderr.flush()


def _tell(observation: Observation) -> None:
    reading = observation.last.kernels
    if isinstance(reading, Ok):
        for dump in reading.value:
            fate = "has ended" if dump.ended else "lives on"
            say(f"pid {dump.pid} wrote {dump.path} in {dump.wrote_s:.1f} s and {fate}")
    elif isinstance(reading, Failed):
        say(f"no dump was read: {reading.error}")
