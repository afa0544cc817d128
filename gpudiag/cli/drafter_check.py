"""gpudiag drafter check: do a drafter's files fit its target and the engine that is installed?"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from gpudiag import __version__
from gpudiag.cli.drawing import drawing, put
from gpudiag.cli.exits import exit_code
from gpudiag.cli.output import Output, emit, output_options, say
from gpudiag.cli.places import check_directory, program

if TYPE_CHECKING:
    from gpudiag.model.facts import ServedBy


@click.command()
@click.argument("draft", metavar="DRAFT")
@click.option("--target", metavar="DIR", help="Directory of the target model.")
@click.option("--engine", type=click.Choice(["sglang", "vllm"]), help="The engine that will serve; default: the one installed.")
@click.option("--python", metavar="PATH", help="Interpreter of the server; default: the active environment that has an engine.")
@click.option("--algorithm", metavar="NAME", help="The algorithm or method that will be asked for, e.g. EAGLE3.")
@click.option(
    "--context", metavar="TOKENS", type=click.IntRange(1), help="Longest text that will be served; default: the target's."
)
@click.option("--fast", is_flag=True, help="Do not import the engine: run the functions that decide alone.")
@click.option("-v", "--verbose", is_flag=True, help="Show every check with its evidence.")
@output_options
def check(
    *,
    draft: str,
    target: str | None,
    engine: ServedBy | None,
    python: str | None,
    algorithm: str | None,
    context: int | None,
    fast: bool,
    verbose: bool,
    output: Output,
) -> int:
    """Check the files of an EAGLE-3 drafter against its target and an engine.

    Only headers and the few tensors that decide are read: no weights are loaded, no GPU is used.
    """
    from gpudiag.doctor import interpreter
    from gpudiag.drafter import check as drafter_check
    from gpudiag.model.facts import Asked

    started = time.perf_counter()
    check_directory("", draft, on_hub=True)
    check_directory("--target", target, on_hub=True)
    chosen = program(python, "gpudiag drafter check") if python else interpreter.choose(os.environ, engine)
    asked = Asked(
        engine=engine,
        python=chosen,
        model=target,
        draft=draft,
        algorithm=algorithm,
        context=context,
        depth="fast" if fast else "full",
    )
    if chosen is not None and target is not None and not fast and sys.stderr.isatty():
        say(f"asking {engine or 'the engine'} itself, by importing it; --fast leaves that out")
    facts = drafter_check.read(asked)
    for note in drafter_check.notes(facts):
        say(note)
    results = drafter_check.results(facts)
    report = drafter_check.report(facts, results, __version__, time.perf_counter() - started)
    if chosen is None:
        say("no engine is installed here: judged by what is known of its versions (--python names an interpreter)")
    if output.format == "text":
        from gpudiag.render.doctor import text
        from gpudiag.rules.drafter import summary

        about = summary.lines(report.drafter) if report.drafter is not None else ()
        put(text(report, verbose=verbose, about=about, **drawing(output)), output)
    else:
        emit([report], output)
    return exit_code(report, output.fail_on, partial=any(r.status == "unknown" for r in results))
