"""gpudiag drafter measure: what a running server accepts, what a round costs, and whether it pays."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gpudiag import __version__
from gpudiag.cli.api_key import headers_from
from gpudiag.cli.drawing import drawing, put
from gpudiag.cli.exits import exit_code
from gpudiag.cli.output import Output, emit, output_options, say
from gpudiag.errors import UsageError

if TYPE_CHECKING:
    from gpudiag.drafter.run import Plan, Progress
    from gpudiag.model.speculation import Measurement, ServerRun

F = TypeVar("F", bound=Callable[..., Any])

_GIVEN: Final = "gpudiag drafter measure --accept-rate 0.15 --steps 3 --speedup 0.66"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to send to a server."""

    prompts: Path | None
    requests: int
    max_tokens: int
    concurrency: int
    temperature: float
    deadline_s: float
    raw: bool
    model: str | None
    api_key_env: str | None


@dataclass(frozen=True, kw_only=True)
class Given:
    """Numbers that somebody measured."""

    accept_rate: float | None
    accept_length: float | None
    steps: int | None
    speedup: float | None

    @property
    def acceptance(self) -> bool:
        return self.accept_rate is not None or self.accept_length is not None

    @property
    def any(self) -> bool:
        return self.acceptance or self.steps is not None or self.speedup is not None


def _asking(command: F) -> F:
    """Options about the requests."""
    for option in reversed(
        (
            click.option("--prompts", type=click.Path(path_type=Path), metavar="FILE", help="A prompt a line, or JSON lines."),
            click.option("-n", "--requests", type=click.IntRange(1, 512), default=24, show_default=True, help="First N prompts."),
            click.option("--max-tokens", type=click.IntRange(8, 8192), default=128, show_default=True, help="Of each answer."),
            click.option("--concurrency", type=click.IntRange(1, 64), default=1, show_default=True, help="Requests at a time."),
            click.option("--temperature", type=click.FloatRange(0, 2), default=0.0, show_default=True),
            click.option("--deadline", type=click.FloatRange(1, 3600), default=120.0, show_default=True, help="Seconds each."),
            click.option("--raw", is_flag=True, help="Send text instead of a chat: no chat template."),
            click.option("--model", metavar="NAME", help="Model to ask for; default: the first that the server names."),
            click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the server's API key."),
        )
    ):
        command = option(command)
    return command


def _by_hand(command: F) -> F:
    """Options that stand for a server."""
    for option in reversed(
        (
            click.option("--accept-rate", type=click.FloatRange(0, 1), help="By hand: share of drafts accepted, 0.15 for 15 %."),
            click.option("--accept-length", type=click.FloatRange(1, 64), help="By hand: tokens a round, the target's included."),
            click.option("--steps", type=click.IntRange(1, 63), help="By hand, or with --log: drafts a round."),
            click.option("--speedup", type=click.FloatRange(0.01, 100), help="By hand, or with --log: speed over a plain run."),
        )
    ):
        command = option(command)
    return command


@click.command()
@click.argument("url", required=False)
@click.option("--plain", metavar="URL|FILE", help="The server without speculation, or a report of it: what a round costs.")
@click.option(
    "--simulated",
    metavar="URL|FILE",
    help="The server with simulated acceptance: the round is timed there. vLLM cannot simulate it on a CPU.",
)
@click.option("--other", type=click.Path(path_type=Path), metavar="FILE", help="A report with another number of steps.")
@click.option("--log", metavar="FILE", help="Log of the server: acceptance by its lines; works without URL.")
@_asking
@_by_hand
@click.option("-v", "--verbose", is_flag=True, help="Show the evidence of each finding.")
@output_options
def measure(
    *,
    url: str | None,
    plain: str | None,
    simulated: str | None,
    other: Path | None,
    log: str | None,
    accept_rate: float | None,
    accept_length: float | None,
    steps: int | None,
    speedup: float | None,
    verbose: bool,
    output: Output,
    deadline: float,
    **asked: Any,
) -> int:
    """Measure what a running server accepts of its drafter, and whether speculation pays.

    URL is the address of a server that serves, for example http://127.0.0.1:30000. A few prompts are sent to it, one at a time;
    acceptance comes from its answers, its counters and its log. With --plain also the cost of a round is known, and with it the
    acceptance at which speculation breaks even.
    """
    from gpudiag.rules.speculation import judge

    started, at = time.monotonic(), time.time()
    given = Given(accept_rate=accept_rate, accept_length=accept_length, steps=steps, speedup=speedup)
    _check(url, given, log, needs_url={"--plain": plain, "--simulated": simulated, "--other": other})
    if given.acceptance:
        m = _from_given(given)
    elif url is None:
        m = _of_log(log or "", given)
    else:
        m = _measured(url, plain, simulated, other, log, Asked(**asked, deadline_s=deadline))
    report = judge.report(m, version=__version__, host=platform.node(), at=at, wall_s=time.monotonic() - started)
    if output.format == "text":
        from gpudiag.render.speculation import text

        put(text(report, verbose=verbose, **drawing(output)), output, found=bool(report.findings))
    else:
        emit([report], output)
    untold = m.acceptance is None and (m.served is None or m.served.steps != 0)
    return exit_code(report, output.fail_on, partial=untold)


def _check(url: str | None, given: Given, log: str | None, *, needs_url: Mapping[str, object]) -> None:
    for option, value in needs_url.items():
        if value is not None and url is None:
            raise UsageError(f"{option} needs a server to compare with", help=f"gpudiag drafter measure URL {option} {value}")
    if given.any and url is not None:
        raise UsageError("numbers given by hand and a server contradict each other", help=_GIVEN)
    if given.acceptance and log is not None:
        raise UsageError("an acceptance given by hand and a log contradict each other", help=_GIVEN)
    if url is None and log is None and not given.any:
        raise UsageError("there is nothing to measure", help="gpudiag drafter measure http://127.0.0.1:30000")
    if given.any and given.steps is None:
        raise UsageError("numbers given by hand need the number of drafts a round", help=_GIVEN)
    if given.any and log is None and (given.accept_rate is None) == (given.accept_length is None):
        raise UsageError("give the acceptance as --accept-rate or as --accept-length", help=_GIVEN)


def _from_given(given: Given) -> Measurement:
    from gpudiag.drafter.measure import by_hand

    steps = given.steps or 1
    if given.accept_length is not None and given.accept_length > steps + 1:
        raise UsageError(
            f"--accept-length {given.accept_length:g}: {steps} drafts give at most {steps + 1} tokens a round",
            help="--steps is the number of drafts a round",
        )
    return by_hand(steps=steps, rate=given.accept_rate, length=given.accept_length, speedup=given.speedup)


def _of_log(log: str, given: Given) -> Measurement:
    from gpudiag.drafter import log_lines
    from gpudiag.drafter.measure import of_log

    lines = log_lines.read(log)
    if lines is None:
        raise UsageError(
            f"--log {log}: no line tells of acceptance", help="vLLM logs it every 10 s, SGLang every 40 steps, while they serve"
        )
    return of_log(lines, steps=given.steps, speedup=given.speedup)


def _measured(
    url: str, plain: str | None, simulated: str | None, other: Path | None, log: str | None, asked: Asked
) -> Measurement:
    from gpudiag.drafter import log_lines
    from gpudiag.drafter.measure import measurement, saved_run

    second = saved_run(other, "--other") if other is not None else None
    since = _size(log)
    plan, progress = _plan(asked), _progress()
    plain_run = _run_or_saved(plain, "--plain", plan, asked, progress)
    if plain_run is not None and plain_run.steps:
        raise UsageError(f"--plain {plain}: this server speculates", help="start it once without the drafter")
    served = _run(url, plan, asked, progress)
    simulated_run = _run_or_saved(simulated, "--simulated", plan, asked, progress)
    for option, run in (("--plain", plain_run), ("--simulated", simulated_run)):
        _must_be_alike(option, run, served)
    lines = log_lines.read(log, since) if log is not None else None
    return measurement(served, plain=plain_run, simulated=simulated_run, other=second, log=lines)


def _run_or_saved(where: str | None, option: str, plan: Plan, asked: Asked, progress: Progress) -> ServerRun | None:
    """The run of the server at this address, or the one that a file holds."""
    from gpudiag.drafter.measure import saved_run

    if where is None:
        return None
    if "://" not in where and Path(where).exists():
        return saved_run(Path(where), option)
    if where.startswith(("/", ".", "~")) or where.endswith(".json"):
        raise UsageError(f"{option} {where}: no such file", help="gpudiag drafter measure URL --json -o FILE writes one")
    return _run(where, plan, asked, progress)


def _run(where: str, plan: Plan, asked: Asked, progress: Progress) -> ServerRun:
    from gpudiag.collect.http_ask import base_url
    from gpudiag.drafter.run import put as run_plan
    from gpudiag.drafter.server import inspect

    run = run_plan(inspect(base_url(where), model=asked.model, headers=plan.headers), plan, progress)
    progress("")
    return run


def _must_be_alike(option: str, run: ServerRun | None, served: ServerRun | None) -> None:
    """Times of another load say nothing about this one."""
    if run is None or served is None or run.load.concurrency == served.load.concurrency:
        return
    raise UsageError(
        f"{option} was measured with {run.load.concurrency} requests at a time, the server with {served.load.concurrency}",
        help=f"--concurrency {run.load.concurrency}, or measure {option[2:]} again",
    )


def _plan(asked: Asked) -> Plan:
    from gpudiag.drafter import prompts
    from gpudiag.drafter.request import Ask
    from gpudiag.drafter.run import Plan

    chosen = prompts.read(asked.prompts) if asked.prompts is not None else prompts.built_in()
    return Plan(
        prompts=chosen[: asked.requests],
        name=asked.prompts.name if asked.prompts is not None else prompts.BUILT_IN,
        how=Ask(
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            endpoint="text" if asked.raw else "chat",
            deadline_s=asked.deadline_s,
        ),
        concurrency=min(asked.concurrency, len(chosen), asked.requests),
        headers=headers_from(asked.api_key_env),
    )


def _progress() -> Progress:
    """One line that is written over on a terminal; on anything else a line for each server."""
    if not sys.stderr.isatty():
        seen: set[str] = set()

        def told(message: str) -> None:
            server = message.partition(": request")[0]
            if message and server not in seen:
                seen.add(server)
                say(message)

        return told

    def over(message: str) -> None:
        click.echo(f"\r\x1b[K{message and 'gpudiag: ' + message}", err=True, nl=False)

    return over


def _size(log: str | None) -> int:
    """Where the log ends now: what it says of earlier requests is not ours."""
    if log is None:
        return 0
    try:
        return os.stat(log).st_size
    except OSError as error:
        raise UsageError(f"--log {log}: {error.strerror}", help="name the file that the server writes to") from None
