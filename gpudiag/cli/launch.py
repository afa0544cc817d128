"""gpudiag launch: start a server with EAGLE-3, checked before, watched while it comes up and serves, evidence kept."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gpudiag import __version__
from gpudiag.cli.drawing import drawing, put
from gpudiag.cli.output import ColorWhen, Output, drawing_options, say
from gpudiag.errors import ExitCode, NoTargetError, UsageError

if TYPE_CHECKING:
    from gpudiag.launch.planning import Planned
    from gpudiag.launch.request import Request
    from gpudiag.model.doctor import DoctorReport
    from gpudiag.model.run import LaunchPlan

_INSTALL: Final = {
    "sglang": 'pip install "gpudiag[serve]" (sglang into this environment), or --python /path/to/venv/bin/python',
    "vllm": "pip install vllm in an environment of its own, then --python /path/to/venv/bin/python",
}
_PARTS: Final = "flight-recorder, nccl-ras, nccl-log, faulthandler, log, metrics, watchdogs, path"


EPILOG: Final = """\b
Examples:
  gpudiag launch sglang --model DIR --draft DIR --tp 8
  gpudiag launch vllm --model DIR --dry-run -- --max-model-len 8192

\b
Exit codes:
  0    the server was ready, and was ended on request; with --detach: is ready
  1    an error was found before the start; or it crashed, was killed or hung
  2    wrong usage
  3    no interpreter with the engine
  4    it ended, and nothing that is left says why
  70   whoever watches the server is gone, or a bug; the server may run on
  130  it was ended on request before it was ready
"""


class _Command(click.Command):
    """Says where options of the engine go, to whoever puts them among ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            near = f"{' or '.join(error.possibilities)}? " if error.possibilities else ""
            raise UsageError(
                f"gpudiag launch has no option {error.option_name}",
                help=f"{near}options of the engine stand behind --: gpudiag launch ENGINE --model DIR -- {error.option_name}",
            ) from error


@click.command(cls=_Command, epilog=EPILOG)
@click.argument("engine", type=click.Choice(["sglang", "vllm"]), required=False)
@click.option("--model", metavar="DIR", help="Directory of the model, or the name of one in the hub's cache.")
@click.option("--draft", metavar="DIR", help="EAGLE-3 drafter; default: the profile's, if it is on this disk.")
@click.option("--no-draft", is_flag=True, help="Serve without speculation.")
@click.option("--tp", type=click.IntRange(1, 1024), help="Tensor-parallel size; default: the profile's.")
@click.option("--port", type=click.IntRange(1, 65535), help="Default: 30000 (sglang), 8000 (vllm).")
@click.option("--profile", "profiles", metavar="NAME|FILE", multiple=True, help="Default: the one that fits the model.")
@click.option("--python", metavar="PATH", help="Interpreter that has the engine; default: the first one around that has it.")
@click.option("--record", metavar="DIR", help="Keep this run's files below DIR, not ~/.local/state/gpudiag/runs.")
@click.option("--no-arm", metavar="PART", multiple=True, help=f"Leave out, or all: {_PARTS}.")
@click.option("--arm-kernel-dump", is_flag=True, help="Also let a CUDA core dump be asked for. Taking it ends the rank.")
@click.option("--force", is_flag=True, help="Start in spite of errors that the checks found.")
@click.option("--detach", is_flag=True, help="Leave the server to its supervisor as soon as it is ready.")
@click.option("--no-tui", is_flag=True, help="Lines instead of a screen, as without a terminal.")
@click.option("--dry-run", is_flag=True, help="Print the command that would be run, and start nothing.")
@click.option("--explain", is_flag=True, help="Print why each argument and variable is there, and start nothing.")
@click.option("--list-profiles", is_flag=True, help="List the profiles, shipped and your own.")
@drawing_options
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(*, engine: str | None, model: str | None, list_profiles: bool, ascii_only: bool, color: ColorWhen, **said: Any) -> int:
    """Start SGLang or vLLM with an EAGLE-3 drafter, and keep the evidence when it dies or hangs.

    What comes after -- goes to the engine as it is. Nothing that you set, there or in the environment, is overridden.
    """
    output = Output(ascii=ascii_only, color=color)
    if list_profiles:
        return _list(output)
    if engine is None or model is None:
        raise UsageError("launch needs an engine and --model", help="gpudiag launch sglang|vllm --model DIR")
    if said["draft"] is not None and said["no_draft"]:
        raise UsageError("--draft and --no-draft contradict each other", help="leave one of them out")
    if said["arguments"] and not said["arguments"][0].startswith("-"):
        raise UsageError(
            f"{said['arguments'][0]!r} is no option",
            help=f"gpudiag launch {engine} --model DIR ... -- --option value, for the engine",
        )
    not_armed = _parts(said["no_arm"])
    request = _request(
        engine=engine,
        model=model,
        draft=said["draft"],
        speculate=not said["no_draft"],
        tensor_parallel=said["tp"],
        port=said["port"],
        profiles=said["profiles"],
        python=said["python"],
        not_armed=not_armed,
        kernel_dump=said["arm_kernel_dump"],
        arguments=said["arguments"],
    )
    started = time.perf_counter()
    planned = _planned(request, said["record"])
    report = _judged(planned, time.perf_counter() - started)
    if said["explain"]:
        _explain(planned.plan, output)
    if said["dry_run"]:
        _print_command(planned.plan)
    for note in planned.plan.notes:
        say(note)
    refused = _tell(report, output, force=said["force"])
    if said["dry_run"] or said["explain"]:
        return ExitCode.FINDINGS if refused else ExitCode.OK
    if refused and not said["force"]:
        return ExitCode.FINDINGS
    return _start(planned.plan, output, tui=not said["no_tui"], detach=said["detach"])


def _request(**said: object) -> Request:
    import msgspec

    from gpudiag.launch import drafters
    from gpudiag.launch.request import Request

    home = Path.home()
    said["model"] = drafters.required_directory("--model", str(said["model"]), os.environ, home)
    if said["draft"] is not None:
        said["draft"] = drafters.required_directory("--draft", str(said["draft"]), os.environ, home)
    # Last: it may take a second, and the directories that are named do not depend on it.
    said["python"] = _python(said["python"], str(said["engine"]))
    return msgspec.convert(said, Request)


def _python(named: object, engine: str) -> str:
    """The interpreter of the server as an absolute path. Raises NoTargetError if none has the engine, with what to install."""
    from gpudiag.cli import places
    from gpudiag.doctor import interpreter
    from gpudiag.doctor.install import absolute

    if named is None:
        found = interpreter.choose(os.environ, engine)
        if found is None:
            raise NoTargetError(f"no interpreter here has {engine}", help=_INSTALL[engine])
        return absolute(found)
    program = places.program(str(named), f"gpudiag launch {engine} --model DIR")
    if not interpreter.has_any(absolute(program), (engine,)) and not _imports(program, engine):
        raise NoTargetError(f"{program} has no {engine}", help=f"{program} -m pip install {engine}, or another --python")
    return absolute(program)


def _imports(program: str, engine: str) -> bool:
    """Whether the interpreter finds the engine elsewhere: an editable install, PYTHONPATH."""
    from gpudiag.doctor import install
    from gpudiag.model.reading import Ok

    environment = install.describe(program).environment
    return isinstance(environment, Ok) and (p := environment.value.package(engine)) is not None and bool(p.origin)


def _parts(named: tuple[str, ...]) -> frozenset[str]:
    import difflib

    from gpudiag.launch.arming import PARTS

    if "all" in named:
        return frozenset(PARTS)
    for name in named:
        if name not in PARTS:
            near = difflib.get_close_matches(name, PARTS, n=1)
            raise UsageError(f"--no-arm {name}: there is no such part", help=f"--no-arm {near[0]}" if near else _PARTS)
    return frozenset(named)


def _planned(request: Request, record: str | None) -> Planned:
    from gpudiag.launch import host, planning

    return planning.make(request, host.look(request.engine, record), os.environ, Path.home(), say=say)


def _judged(planned: Planned, wall_s: float) -> DoctorReport:
    from gpudiag.rules.preflight import judge, registry

    results = judge.judge(planned.facts, registry.CHECKS)
    return judge.report(planned.facts, results, command="launch", version=__version__, wall_s=wall_s)


def _tell(report: DoctorReport, output: Output, *, force: bool) -> bool:
    """Show what the checks found, on stderr. Returns whether an error stands against the start."""
    from gpudiag.render.launch import findings

    errors = [f for f in report.findings if f.severity == "error"]
    click.echo(findings(report, **drawing(output)), nl=False, err=True)
    if errors and force:
        say("started in spite of these errors: --force")
    elif errors:
        say("it is not started with these errors; --force starts it all the same, gpudiag runbook CODE says more")
    return bool(errors)


def _explain(plan: LaunchPlan, output: Output) -> None:
    from gpudiag.launch.secrets import for_display
    from gpudiag.render.launch import explanation

    put(explanation(for_display(plan), os.environ.get("PATH", ""), **drawing(output)), output)


def _print_command(plan: LaunchPlan) -> None:
    from gpudiag.launch.secrets import HIDDEN, for_display
    from gpudiag.render.launch import command

    shown = for_display(plan)
    click.echo(command(shown, os.environ.get("PATH", "")), nl=False)
    if shown != plan:
        say(f"{HIDDEN} stands for a secret that is not printed")


def _list(output: Output) -> int:
    from gpudiag.launch.profiles import all_profiles
    from gpudiag.render.launch import listing

    rows = [(profile.name, profile.summary, place) for profile, place in all_profiles(os.environ, Path.home())]
    put(listing(rows, **drawing(output)), output)
    return ExitCode.OK


def _start(plan: LaunchPlan, output: Output, *, tui: bool, detach: bool) -> int:
    from gpudiag.launch.options import SuperviseOptions
    from gpudiag.launch.supervise import supervise
    from gpudiag.tui.entry import fits, open_run

    options = SuperviseOptions(tui=tui and not detach and fits(), detach=detach)

    def screen(run: Path) -> None:
        open_run(run, plain=drawing(output)["plain"], no_color=output.color == "never")

    return supervise(plan, options, say=say, show=lambda text: click.echo(text, nl=False), screen=screen if options.tui else None)
