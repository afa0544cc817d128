"""Where a report goes: stdout, or a file that is written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

import click

from gpudiag.cli.pipes import discard_stdout
from gpudiag.errors import UsageError
from gpudiag.render.plain import clean


def deliver(text: str, file: Path | None, *, found: bool) -> None:
    """Print a report, or write it to the file. What does not fit into the file is printed: looking may not be repeatable.

    Raises UsageError if it could not be written to where it should; after a print instead only if nothing was `found`, so
    that the exit code tells of the findings.
    """
    if file is None:
        _print(text)
        return
    try:
        write_whole(file, text)
    except OSError as error:
        message = f"cannot write {file}: {error.strerror}; the report is on standard output"
        _print(text.encode(sys.stdout.encoding or "utf-8", "replace").decode(sys.stdout.encoding or "utf-8"))
        if not found:
            raise UsageError(message, help="name another file after -o, on a disk with room") from error
        click.echo(f"gpudiag: error: {clean(message)}", err=True)


def write_whole(file: Path, text: str) -> None:
    """Write a file by way of a temporary one beside it, so that a full disk leaves what was there. Raises OSError.

    A device or pipe is written to as it is, and so is a file in a directory that takes no new ones.
    """
    target = file.resolve()
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and not (stat.S_ISREG(mode) and os.access(target.parent, os.W_OK)):
        target.write_text(text, encoding="utf-8")
        return
    temporary = target.with_name(f".gpudiag-{os.getpid()}")
    try:
        with open(temporary, "x", encoding="utf-8") as opened:
            if mode is not None:
                os.fchmod(opened.fileno(), stat.S_IMODE(mode))
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _print(text: str) -> None:
    try:
        click.echo(text, nl=False, color=True)
    except BrokenPipeError:
        # `gpudiag attach | head` has seen enough; the exit code still says what was found.
        discard_stdout()
    except OSError as error:
        discard_stdout()
        raise UsageError(f"cannot write the report: {error.strerror}", help="-o FILE, on a disk with room") from error
