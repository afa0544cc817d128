"""gpudiag doctor: is this machine, this install, this model and drafter fit to serve?"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gpudiag import __version__
from gpudiag.cli.drawing import drawing, put
from gpudiag.cli.exits import exit_code
from gpudiag.cli.output import Output, emit, output_options, say
from gpudiag.cli.places import check_directory, program
from gpudiag.errors import ExitCode, NotInspectableError, UsageError

if TYPE_CHECKING:
    from gpudiag.model.doctor import CheckResult, DoctorReport
    from gpudiag.model.facts import Asked, Facts
    from gpudiag.rules.preflight.base import Check

DEFAULT_PORTS: Final = {"sglang": 30000, "vllm": 8000}


@click.command()
@click.option("--engine", type=click.Choice(["sglang", "vllm"]), help="The engine that will serve; default: those installed.")
@click.option(
    "--python",
    "pythons",
    metavar="PATH",
    multiple=True,
    help="Interpreter of the server; default: the active environment that has an engine. A second one compares the engines.",
)
@click.option("--model", metavar="DIR", help="Directory of the model.")
@click.option("--draft", metavar="DIR", help="Directory of an EAGLE-3 drafter.")
@click.option("--build", metavar="DIR", help="A source tree of kernels that is going to be built.")
@click.option("--algorithm", metavar="NAME", help="The speculative algorithm that will be asked for, e.g. EAGLE3.")
@click.option("--tp", type=click.IntRange(1, 1024), default=1, show_default=True, help="Tensor-parallel size.")
@click.option("--port", type=click.IntRange(1, 65535), multiple=True, help="Port that must be free; default: the engine's.")
@click.option("--for", "gpus_for", metavar="CC", multiple=True, help="Judge for GPUs of this compute capability, e.g. 12.0.")
@click.option("--fast", is_flag=True, help="Leave out what runs the engine's code: its import.")
@click.option("--deep", is_flag=True, help="Compare every installed file by content, libraries included.")
@click.option("--active", is_flag=True, help="Also move data between the GPUs. On a broken machine this can wedge them.")
@click.option("--only", metavar="CODE", multiple=True, help="Make only these checks (code or name).")
@click.option("--list", "list_only", is_flag=True, help="List all checks and make none.")
@click.option("--save-facts", type=click.Path(path_type=Path, dir_okay=False), help="Write what was read to a file, as JSON.")
@click.option("--from-facts", type=click.Path(path_type=Path, dir_okay=False), help="Judge what --save-facts wrote, anywhere.")
@click.option("-v", "--verbose", is_flag=True, help="Show every check, with its evidence.")
@output_options
def doctor(
    *,
    engine: str | None,
    pythons: tuple[str, ...],
    model: str | None,
    draft: str | None,
    build: str | None,
    algorithm: str | None,
    tp: int,
    port: tuple[int, ...],
    gpus_for: tuple[str, ...],
    fast: bool,
    deep: bool,
    active: bool,
    only: tuple[str, ...],
    list_only: bool,
    save_facts: Path | None,
    from_facts: Path | None,
    verbose: bool,
    output: Output,
) -> int:
    """Check this machine, an install, a model and a drafter before they serve.

    Nothing is changed. By default the engine is imported once in a child process; --fast leaves that out.
    """
    from gpudiag.rules.preflight import judge

    checks = _chosen(only)
    if list_only:
        return _list(checks, output)
    if fast and deep:
        raise UsageError("--fast and --deep contradict each other", help="leave one of them out")
    started = time.perf_counter()
    if from_facts is not None:
        facts = _load(from_facts)
    else:
        plain = {
            "engine": engine,
            "model": model,
            "draft": draft,
            "build": build,
            "algorithm": algorithm,
            "tp": tp,
            "active": active and _needs_gpus(checks),
            "tests": _tests(checks) if only else (),
        }
        depth = "fast" if fast else "deep" if deep else "full"
        asked = _asked({**plain, "depth": depth, "gpus_for": gpus_for, "ports": port}, pythons)
        if asked.active:
            say("--active moves data between the GPUs; a machine with broken peer access may need a reset afterwards")
        facts = _read(asked)
    results = judge.judge(facts, checks)
    wall_s = None if from_facts is not None else time.perf_counter() - started
    report = judge.report(facts, results, command="doctor", version=__version__, wall_s=wall_s)
    if save_facts is not None:
        _save(facts, save_facts, redact=output.redact)
    _show(report, output, verbose)
    return exit_code(report, output.fail_on, _is_partial(results, only) or (bool(pythons) and _is_closed(facts)))


def _chosen(only: tuple[str, ...]) -> tuple[Check, ...]:
    from gpudiag.rules.preflight import registry

    if not only:
        return registry.CHECKS
    found = [registry.check(code) for code in only]
    missing = [code for code, check in zip(only, found, strict=True) if check is None]
    if missing:
        raise UsageError(f"there is no check {missing[0]}", help="gpudiag doctor --list")
    return tuple(dict.fromkeys(check for check in found if check is not None))


def _tests(checks: tuple[Check, ...]) -> tuple[str, ...]:
    """The tests on the GPUs that these checks need."""
    from gpudiag.rules.system.gpu_tests import TESTS_OF

    return tuple(name for check in checks for name in TESTS_OF.get(check.info.code, ()))


def _needs_gpus(checks: tuple[Check, ...]) -> bool:
    return bool(_tests(checks))


def _asked(plain: dict[str, Any], pythons: tuple[str, ...]) -> Asked:
    """The questions as data. Raises UsageError for a directory, interpreter or capability that is none."""
    import msgspec

    from gpudiag.doctor import interpreter
    from gpudiag.model.facts import Asked
    from gpudiag.rules.kernels.runs_on import parse_capability

    for option in ("model", "draft", "build"):
        check_directory(f"--{option}", plain[option], on_hub=option != "build")
    for text in plain["gpus_for"]:
        if parse_capability(text) is None:
            raise UsageError(f"--for {text}: no compute capability", help="--for 9.0 (H100), 10.0 (B200), 12.0 (RTX 50, RTX PRO)")
    programs = tuple(program(python, "gpudiag doctor") for python in pythons)
    engine = plain["engine"]
    ports = plain["ports"] or ((DEFAULT_PORTS[engine],) if engine else ())
    chosen = programs[0] if programs else interpreter.choose(os.environ, engine)
    return msgspec.convert({**plain, "python": chosen, "others": programs[1:], "ports": ports}, Asked)


def _read(asked: Asked) -> Facts:
    from gpudiag.doctor import facts
    from gpudiag.model.reading import Ok

    read = facts.read(asked)
    if asked.python is not None and isinstance(read.install, Ok) and not isinstance(read.install.value.environment, Ok):
        why = read.install.value.environment
        say(f"the install is not looked at: {getattr(why, 'reason', '') or getattr(why, 'error', '')}")
    return read


def _is_partial(results: tuple[CheckResult, ...], only: tuple[str, ...]) -> bool:
    """Unknown is what machines and containers often have; it is partial only where just that was asked for."""
    unknown = [r for r in results if r.status == "unknown"]
    return bool(unknown) and (bool(only) or len(unknown) == len(results))


def _is_closed(facts: Facts) -> bool:
    """Whether the interpreter could not be looked into: partial where one was named."""
    return facts.asked.python is not None and facts.environment is None


def _list(checks: tuple[Check, ...], output: Output) -> int:
    if output.format == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode([c.info for c in checks]), indent=2).decode())
        return ExitCode.OK
    from gpudiag.render.doctor import listing

    put(listing([c.info for c in checks], **drawing(output)), output)
    return ExitCode.OK


def _show(report: DoctorReport, output: Output, verbose: bool) -> None:
    if output.format != "text":
        emit([report], output)
        return
    from gpudiag.render.doctor import text

    if output.redact:
        from gpudiag.session.redact import NEVER_SHOWN, Redactor

        report = (Redactor(NEVER_SHOWN) if output.file is None else Redactor()).apply(report)
    found = exit_code(report, output.fail_on, partial=False) == ExitCode.FINDINGS
    put(text(report, verbose=verbose, **drawing(output)), output, found=found)


def _load(path: Path) -> Facts:
    import msgspec

    from gpudiag.model.decoding import decode_json
    from gpudiag.model.facts import FACTS_SCHEMA, Facts

    try:
        facts = decode_json(path.read_bytes(), Facts)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", help="gpudiag doctor --save-facts facts.json") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} holds no facts: {error}", help="gpudiag doctor --save-facts facts.json") from error
    if facts.schema != FACTS_SCHEMA:
        raise UsageError(
            f"{path} has schema {facts.schema}, this gpudiag reads {FACTS_SCHEMA}", help="use the version that wrote it"
        )
    return facts


def _save(facts: Facts, path: Path, *, redact: bool) -> None:
    """Write facts for somebody else to judge: names, addresses and secrets are taken out unless told otherwise."""
    import msgspec

    if redact:
        from gpudiag.session.redact import Redactor

        redactor = Redactor()
        facts = redactor.apply(facts)
        if redactor.report.items:
            say(f"taken out: {redactor.report.summary} (--no-redact keeps them)")
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1))
    except OSError as error:
        raise NotInspectableError(
            f"cannot write {path}: {error.strerror}", help="name another file after --save-facts"
        ) from error
