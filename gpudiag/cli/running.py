"""Runs a command and turns whatever happens into one clear line and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from gpudiag.cli.group import gpudiag
from gpudiag.cli.pipes import discard_stdout
from gpudiag.errors import ExitCode, GpudiagError

DEBUG_VARIABLE: Final = "GPUDIAG_DEBUG"
_BROKEN_PIPE: Final = 128 + signal.SIGPIPE


def run_command(argv: Sequence[str]) -> int:
    """Run the command that these arguments name and return its exit code. Raises nothing but SystemExit."""
    if "_GPUDIAG_COMPLETE" in os.environ:
        gpudiag.main(list(argv), prog_name="gpudiag")
    code = _guarded(lambda: _invoke(list(argv)), argv)
    # Output may sit in the buffer until here; if the reader has gone, Python would complain at its end.
    return _guarded(_flush, argv) or code


def _invoke(argv: list[str]) -> int:
    with gpudiag.make_context("gpudiag", argv) as context:
        result: Any = gpudiag.invoke(context)
    return int(result or ExitCode.OK)


def _flush() -> int:
    sys.stdout.flush()
    return ExitCode.OK


def _guarded(action: Callable[[], int], argv: Sequence[str]) -> int:
    try:
        return action()
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return ExitCode.INTERRUPTED
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "gpudiag"
        _complain(error.format_message(), f"{path} --help")
        return ExitCode.USAGE
    except click.ClickException as error:
        _complain(error.format_message())
        return ExitCode.USAGE
    except GpudiagError as error:
        _complain(error.message, error.help)
        return error.exit_code
    except BrokenPipeError:
        discard_stdout()
        return _BROKEN_PIPE
    except OSError as error:
        if not _in_writing(error):
            return _internal(error, argv)
        discard_stdout()
        _complain(f"cannot write to standard output: {error.strerror}", "gpudiag ... > FILE, on a disk with room")
        return ExitCode.USAGE
    except Exception as error:  # noqa: BLE001  the last resort: one line instead of a traceback for somebody whose server is down
        return _internal(error, argv)


def _in_writing(error: OSError) -> bool:
    """Whether it came out of what writes to the standard streams, here or in click."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].name in ("echo", _flush.__name__)


def _internal(error: Exception, argv: Sequence[str]) -> int:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    command = " ".join(argv[:1])
    _complain(
        f"internal error, a bug in gpudiag: {type(error).__name__}: {error}{place}",
        f"{DEBUG_VARIABLE}=1 gpudiag {command} ... and report what it prints in the project's issue tracker",
    )
    return ExitCode.INTERNAL


def _complain(message: str, help: str = "") -> None:
    """Write an error to stderr. The text may quote a target's process title, so nothing in it may reach the terminal raw."""
    from gpudiag.render.plain import clean

    first, *others = [f"gpudiag: error: {clean(message)}", *(f"try: {clean(line)}" for line in help.splitlines()[:1])]
    lines = [first, *others, *(f"     {clean(line)}" for line in help.splitlines()[1:])]
    # With stderr gone too there is nobody left to tell.
    with contextlib.suppress(OSError, ValueError):
        click.echo("\n".join(lines), err=True)
