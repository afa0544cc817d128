"""Options that say how a report is shown, and the one place that prints reports."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import click

from gpudiag.cli.exits import FailOn, exit_code
from gpudiag.cli.writing import deliver
from gpudiag.errors import ExitCode, UsageError
from gpudiag.model.report import Report
from gpudiag.session.redact import NEVER_SHOWN, Redactor

Format = Literal["text", "json", "markdown"]
ColorWhen = Literal["auto", "always", "never"]

PLAIN_WIDTH: Final = 80
MAX_WIDTH: Final = 120
"""A line longer than this is hard to follow, however wide the terminal is."""
MIN_WIDTH: Final = 60


_STDOUT: Final = Path("-")


@dataclass(frozen=True, kw_only=True)
class Output:
    """How reports are shown. `file` None is stdout."""

    format: Format = "text"
    file: Path | None = None
    fail_on: FailOn = "error"
    ascii: bool = False
    color: ColorWhen = "auto"
    redact: bool = True

    @property
    def for_a_person(self) -> bool:
        """Whether the report is to be read on the screen, and nowhere else."""
        return self.format == "text" and self.file is None


color_option: Final = click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)


def drawing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how it draws: `ascii_only` and `color`."""
    return click.option("--ascii", "ascii_only", is_flag=True, help="Draw with plain ASCII.")(color_option(command))


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the output options; it receives them as one argument `output`."""

    @click.option("--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True)
    @click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
    @click.option("-o", "--output", "file", type=click.Path(path_type=Path), help="Write the report to a file; - is stdout.")
    @click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "info", "never"]),
        default="error",
        show_default=True,
        help="Exit with 1 if something this bad was found.",
    )
    @click.option("--no-redact", is_flag=True, help="Keep names and addresses in files and in Markdown, and secrets everywhere.")
    @drawing_options
    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        names = ("form", "as_json", "file", "fail_on", "no_redact", "ascii_only", "color")
        form, as_json, file, fail_on, no_redact, ascii_only, color = (kwargs.pop(name) for name in names)
        if as_json and form == "markdown":
            raise UsageError("--json and --format markdown contradict each other", help="leave one of them out")
        file = None if file == _STDOUT else file
        output = Output(
            format="json" if as_json else form,
            file=file,
            fail_on=fail_on,
            ascii=ascii_only,
            color=color,
            redact=not no_redact,
        )
        if file is not None:
            _check_file(file)
        return command(*args, output=output, **kwargs)

    return wrapper


def say(message: str) -> None:
    """Talk to the user: stderr, so that stdout stays data."""
    from gpudiag.render.plain import clean

    click.echo(f"gpudiag: {clean(message)}", err=True)


def emit(reports: Sequence[Report], output: Output, *, array: bool = False, redactor: Redactor | None = None) -> None:
    """Print reports, or write them to the file. `array` makes JSON an array even for one report.

    What leaves the machine (a file, and Markdown, which is made for pasting) is redacted unless told otherwise; what stays
    on the screen loses tokens, passwords and prompts.
    """
    if output.redact and (output.file is not None or output.format == "markdown"):
        redactor = redactor or Redactor()
        reports = [redactor.apply(report) for report in reports]
        if redactor.report.items:
            say(f"taken out: {redactor.report.summary} (--no-redact keeps them)")
    elif output.redact:
        reports = [Redactor(NEVER_SHOWN).apply(report) for report in reports]
    found = any(exit_code(report, output.fail_on, partial=False) == ExitCode.FINDINGS for report in reports)
    deliver(_render(reports, output, array=array), output.file, found=found)


def _render(reports: Sequence[Report], output: Output, *, array: bool) -> str:
    if output.format == "json":
        from gpudiag.render.json import dumps

        return dumps(list(reports) if array else reports[0], indent=2) + "\n"
    if output.format == "markdown":
        from gpudiag.render.markdown import markdown

        return "\n---\n\n".join(markdown(report) for report in reports)
    from gpudiag.render.text import text

    to_terminal = output.file is None and sys.stdout.isatty()
    return "\n".join(
        text(report, width=terminal_width(to_terminal), color=use_color(output.color, to_terminal), ascii=_ascii(output))
        for report in reports
    )


def use_color(when: ColorWhen, to_terminal: bool) -> bool:
    """https://no-color.org and https://force-color.org: a variable counts if it is set and not empty."""
    if when != "auto":
        return when == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (to_terminal and os.environ.get("TERM") != "dumb")


def _ascii(output: Output) -> bool:
    if output.ascii:
        return True
    return output.file is None and "utf" not in (sys.stdout.encoding or "").lower()


def terminal_width(to_terminal: bool) -> int:
    """Columns to draw with: those of the terminal within limits, 80 for a pipe or a file."""
    if not to_terminal:
        return PLAIN_WIDTH
    return max(MIN_WIDTH, min(MAX_WIDTH, shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns))


def _check_file(file: Path) -> None:
    """Refuse a bad file name before the look, not after it."""
    if file.is_dir():
        raise UsageError(f"{file} is a directory", help="name a file after -o")
    if not file.parent.is_dir():
        raise UsageError(f"cannot write {file}: there is no directory {file.parent}", help=f"mkdir -p {file.parent}")
