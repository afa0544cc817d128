"""gpudiag demo: a server that really hangs, and its diagnosis."""

from __future__ import annotations

import random
import time

import click
import msgspec

from gpudiag.cli import target
from gpudiag.cli.attach import look_options
from gpudiag.cli.exits import exit_code_of
from gpudiag.cli.output import Output, emit, output_options, say
from gpudiag.errors import UsageError
from gpudiag.model.report import Report
from gpudiag.session import pipeline


@click.command()
@click.argument("scenario", required=False)
@click.option("--list", "listing", is_flag=True, help="List the scenarios.")
@click.option("--keep", is_flag=True, help="Leave the server running, to look at it yourself.")
@click.option("--ranks", type=click.IntRange(2, 8), default=4, show_default=True)
@click.option("--victim", type=click.IntRange(min=0), help="Rank that causes the hang; any if not given.")
@click.option("--seed", type=int, help="Makes a run repeatable; any if not given.")
@output_options
def demo(
    *, scenario: str | None, listing: bool, keep: bool, ranks: int, victim: int | None, seed: int | None, output: Output
) -> int:
    """Start a small server of real processes, make it hang for real, diagnose it and clean up.

    It needs no GPU and no other package. The diagnosis is that of gpudiag attach: it is not told what was done.
    """
    from gpudiag.demo.scenarios import DEFAULT_SCENARIO, SCENARIOS

    if listing:
        for known in SCENARIOS:
            click.echo(f"{known.name:<18} {known.expected_code}  {known.summary}")
        return 0
    name = scenario or DEFAULT_SCENARIO
    if name not in {s.name for s in SCENARIOS}:
        raise UsageError(f"there is no scenario {name}", help="gpudiag demo --list")
    if victim is not None and victim >= ranks:
        raise UsageError(f"there is no rank {victim} among {ranks}", help=f"--victim 0 to {ranks - 1}")
    return _run(name, ranks, victim, random.randrange(1 << 30) if seed is None else seed, output, keep=keep)  # noqa: S311  no secret


def _run(name: str, ranks: int, victim: int | None, seed: int, output: Output, *, keep: bool) -> int:
    from gpudiag.collect.access import require_own_proc
    from gpudiag.demo.run import start

    require_own_proc()
    say(f"starting a server of {ranks} ranks ...")
    with start(name, ranks=ranks, victim=victim, seed=seed) as server:
        server.wait_until_stuck()
        began = time.monotonic()
        around = pipeline.scan()
        chosen = target.by_pid(around, server.root_pid)
        observation = pipeline.observe((chosen,), around, look_options(), samples=2, interval_s=1.0, confirm=False)
        reports = [_of_demo(r) for r in pipeline.reports_of(observation, command="demo", wall_s=time.monotonic() - began)]
        emit(reports, output)
        place = "" if server.victim_rank is None else f" on rank {server.victim_rank}"
        say(
            f"what was planted: {name}{place}, which is {server.expected.expected_code}; again: gpudiag demo {name} --seed {seed}"
        )
        if keep:
            server.keep()
            say(f"the server keeps running as pid {server.root_pid}")
            say(f"look at it: gpudiag attach {server.root_pid}    end it: kill {server.root_pid}")
    return exit_code_of(reports, output.fail_on)


def _of_demo(report: Report) -> Report:
    """The diagnosis knows nothing of the demo; only this command knows what it started."""
    if report.target is None:
        return report
    return msgspec.structs.replace(report, target=msgspec.structs.replace(report.target, engine="demo"))
