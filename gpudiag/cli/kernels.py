"""gpudiag kernels: which GPU architectures each compiled library really contains."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gpudiag import __version__
from gpudiag.cli.drawing import drawing, put
from gpudiag.cli.exits import exit_code
from gpudiag.cli.group import Group
from gpudiag.cli.output import Output, emit, output_options, say
from gpudiag.errors import ExitCode, NoTargetError, NotInspectableError, UsageError

if TYPE_CHECKING:
    from gpudiag.model.facts import Facts
    from gpudiag.model.kernel_table import LibraryRow
    from gpudiag.model.library import Library

F = TypeVar("F", bound=Callable[..., Any])

CHECKS: Final = ("GPD103", "GPD104", "GPD137")


@click.group(cls=Group)
def kernels() -> None:
    """Say which GPUs compiled libraries have code for: no GPU, no CUDA toolkit, nothing unpacked."""


def _places(command: F) -> F:
    """Arguments that say where to look, shared by both commands."""
    command = click.argument("paths", nargs=-1, metavar="[FILE|DIR]...", type=click.Path(exists=True))(command)
    command = click.option("--python", metavar="PATH", help="Look at what this interpreter has installed.")(command)
    return click.option(
        "--for", "gpus_for", metavar="CC", multiple=True, help="A compute capability, e.g. 12.0; default: the GPUs here."
    )(command)


@kernels.command("list")
@_places
@output_options
def list_(*, paths: tuple[str, ...], python: str | None, gpus_for: tuple[str, ...], output: Output) -> int:
    """List every library with GPU code: its architectures, and how a GPU runs it."""
    libraries = _libraries(paths, python)
    if not libraries:
        raise NoTargetError("no GPU code was found there", help="gpudiag kernels list /path/to/site-packages")
    capabilities = _capabilities(gpus_for) or _here()
    if output.format == "json":
        import msgspec

        from gpudiag.model.kernel_table import KernelTable

        table = KernelTable(libraries=tuple(_row(library, capabilities) for library in libraries))
        put(msgspec.json.format(msgspec.json.encode(table), indent=2).decode() + "\n", output)
        return ExitCode.OK
    from gpudiag.render.kernels import text

    put(text(libraries, capabilities, **drawing(output)), output)
    return ExitCode.OK


@kernels.command()
@_places
@output_options
def check(*, paths: tuple[str, ...], python: str | None, gpus_for: tuple[str, ...], output: Output) -> int:
    """Report libraries that a GPU cannot run, and builds that are not the ones loaded."""
    from gpudiag.rules.preflight import judge, registry

    started = time.perf_counter()
    facts = _facts(paths, python, gpus_for)
    chosen = [c for code in CHECKS if (c := registry.check(code)) is not None and (not paths or code != "GPD104")]
    results = judge.judge(facts, chosen)
    report = judge.report(facts, results, command="kernels check", version=__version__, wall_s=time.perf_counter() - started)
    if output.format == "text":
        from gpudiag.render.doctor import text

        put(text(report, verbose=True, **drawing(output)), output)
    else:
        emit([report], output)
    return exit_code(report, output.fail_on, partial=any(r.status == "unknown" for r in results))


def _facts(paths: tuple[str, ...], python: str | None, gpus_for: tuple[str, ...]) -> Facts:
    import msgspec

    from gpudiag.doctor import facts
    from gpudiag.model.facts import Asked
    from gpudiag.model.reading import Ok

    _capabilities(gpus_for)
    chosen = None if paths else _interpreter(python)
    read = facts.read(Asked(python=chosen, gpus_for=gpus_for, depth="fast"))
    if paths:
        read = msgspec.structs.replace(read, libraries=Ok(value=_libraries(paths, None), at=read.at))
    return read


def _libraries(paths: tuple[str, ...], python: str | None) -> tuple[Library, ...]:
    from gpudiag.doctor import install, libraries
    from gpudiag.model.reading import Ok

    if paths:
        try:
            return libraries.scan(paths)
        except OSError as error:
            raise NotInspectableError(
                f"cannot read {error.filename}: {error.strerror}", help="sudo gpudiag kernels list ..."
            ) from error
    found = install.describe(_interpreter(python)).environment
    if not isinstance(found, Ok):
        why = getattr(found, "reason", "") or getattr(found, "error", "")
        raise NotInspectableError(why, help=getattr(found, "help", "") or "gpudiag kernels list /path/to/site-packages")
    return libraries.scan(install.package_directories(found.value))


def _interpreter(python: str | None) -> str:
    from gpudiag.doctor import interpreter

    named = shutil.which(python) if python is not None else None
    if python is not None and named is None:
        raise UsageError(
            f"--python {python}: no program there that you may run", help="gpudiag kernels list --python /path/to/venv/bin/python"
        )
    chosen = named or interpreter.choose(os.environ, None)
    if chosen is None:
        raise NoTargetError(
            "no interpreter with sglang or vllm was found", help="gpudiag kernels list --python /path/to/venv/bin/python"
        )
    if python is None:
        say(f"looking at {chosen}")
    return chosen


def _capabilities(gpus_for: tuple[str, ...]) -> list[int]:
    from gpudiag.rules.kernels.runs_on import parse_capability

    found = []
    for text in gpus_for:
        capability = parse_capability(text)
        if capability is None:
            raise UsageError(f"--for {text}: no compute capability", help="--for 9.0 (H100), 10.0 (B200), 12.0 (RTX 50, RTX PRO)")
        found.append(capability)
    return found


def _here() -> list[int]:
    """Capabilities of the GPUs of this machine; none without a driver."""
    from gpudiag.doctor.gpus import gpus
    from gpudiag.doctor.reads import Root
    from gpudiag.model.reading import Ok
    from gpudiag.rules.kernels.runs_on import parse_capability

    reading = gpus(Root())
    texts = {g.capability.value for g in reading.value.gpus if isinstance(g.capability, Ok)} if isinstance(reading, Ok) else set()
    return sorted(c for c in map(parse_capability, texts) if c is not None)


def _row(library: Library, capabilities: list[int]) -> LibraryRow:
    from gpudiag.model.kernel_table import LibraryRow, Use
    from gpudiag.rules.kernels.backends import backend
    from gpudiag.rules.kernels.runs_on import capability_name, coverage

    known = backend(library.path)
    covered = {capability_name(c): coverage(library, c) for c in capabilities if library.units}
    return LibraryRow(
        path=library.path,
        size_bytes=library.size_bytes,
        role=known.role if known else None,
        units=library.fatbins,
        stub_units=library.stubs,
        targets={i.target.name: i.count for i in library.images},
        on={name: Use(way=c.way, native=c.native, jit=c.jit, none=c.none) for name, c in covered.items()},
        notes=library.notes,
    )
