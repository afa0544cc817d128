"""gpudiag drafter check: do a drafter's files fit its target and the engine that is installed?"""

from __future__ import annotations

import os
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
@click.option("-v", "--verbose", is_flag=True, help="Show every check with its evidence.")
@output_options
def check(
    *,
    draft: str,
    target: str | None,
    engine: ServedBy | None,
    python: str | None,
    algorithm: str | None,
    verbose: bool,
    output: Output,
) -> int:
    """Check the files of an EAGLE-3 drafter against its target and an engine.

    Only headers and the few tensors that decide are read: no weights are loaded, no GPU is used.
    """
    from gpudiag.doctor import interpreter
    from gpudiag.drafter import check as drafter_check
    from gpudiag.rules.preflight import judge

    started = time.perf_counter()
    check_directory("", draft, on_hub=True)
    check_directory("--target", target, on_hub=True)
    chosen = program(python, "gpudiag drafter check") if python else interpreter.choose(os.environ, engine)
    facts = drafter_check.read(draft, target, engine=engine, python=chosen, algorithm=algorithm)
    results = drafter_check.results(facts)
    report = judge.report(facts, results, command="drafter check", version=__version__, wall_s=time.perf_counter() - started)
    if chosen is None:
        say("no engine is installed here: judged by what is known of its versions (--python names an interpreter)")
    if output.format == "text":
        from msgspec.structs import replace

        from gpudiag.render.doctor import text

        # Which engine to choose is doctor's question.
        put(text(replace(report, choices=()), verbose=verbose, **drawing(output)), output)
    else:
        emit([report], output)
    return exit_code(report, output.fail_on, partial=any(r.status == "unknown" for r in results))
