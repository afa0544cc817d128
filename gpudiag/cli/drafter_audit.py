"""gpudiag drafter audit-data: is a file of conversations fit to train a drafter on?"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpudiag.cli.drawing import drawing, put
from gpudiag.cli.output import Output, output_options, say
from gpudiag.cli.places import check_directory, program
from gpudiag.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpudiag.model.audit import Audit

_TELL_S: Final = 5.0
_EXCERPT: Final = 160


@click.command("audit-data")
@click.argument("data", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--target", metavar="DIR", help="Directory of the target: its chat template and its tokens.")
@click.option("--draft", metavar="DIR", help="Directory of the drafter: its vocabulary and its length.")
@click.option("--python", metavar="PATH", help="Interpreter with transformers; default: the active environment of an engine.")
@click.option("--sample", type=click.IntRange(1, 2000), default=200, show_default=True, help="Rows to render with the template.")
@click.option("--limit", type=click.IntRange(1), metavar="ROWS", help="Look at the first rows only.")
@click.option("--show", is_flag=True, help="Show the beginning of the rows that are named. They hold what people wrote.")
@output_options
def audit_data(
    *,
    data: Path,
    target: str | None,
    draft: str | None,
    python: str | None,
    sample: int,
    limit: int | None,
    show: bool,
    output: Output,
) -> int:
    """Check conversations (JSONL) that a drafter is to be trained on.

    Counts and line numbers only: no text of a row is printed unless --show asks for it.
    """
    from gpudiag.doctor import interpreter
    from gpudiag.drafter import audit_run

    check_directory("--target", target, on_hub=True)
    check_directory("--draft", draft, on_hub=True)
    check_format(output)
    chosen = program(python, "gpudiag drafter audit-data FILE") if python else interpreter.choose(os.environ, None)
    beside = audit_run.Beside(target=target, draft=draft, python=chosen)
    try:
        found = audit_run.run(data, beside, sample=sample, limit=limit, tell=teller("rows"))
    except OSError as error:
        raise UsageError(f"cannot read {data}: {error.strerror}", help=f"ls -l {data}") from error
    if not found.rows:
        raise UsageError(f"{data} has no rows", help="one JSON object a line: conversations, messages, or input_ids")
    return show_audit(found, output, _excerpts(data, found) if show else {})


def teller(what: str) -> Callable[[int], None] | None:
    """Says on a terminal now and then how far it is."""
    if not sys.stderr.isatty():
        return None
    last = time.monotonic()

    def tell(number: int) -> None:
        nonlocal last
        if number % 100 == 0 and time.monotonic() - last > _TELL_S:
            last = time.monotonic()
            say(f"{number:,} {what}")

    return tell


def _excerpts(data: Path, found: Audit) -> dict[str, str]:
    """The beginnings of the rows that are named, for who asked for them."""
    wanted = {place for item in found.items for place in item.places}
    shown = {}
    with data.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if str(number) in wanted:
                shown[str(number)] = line[:_EXCERPT].decode("utf-8", "replace")
    return shown


def check_format(output: Output) -> None:
    """Refuse the form that audits do not have, before the work."""
    if output.format == "markdown":
        raise UsageError("an audit has no Markdown form", help="leave --format out, or --json")


def show_audit(found: Audit, output: Output, excerpts: Mapping[str, str]) -> int:
    """Print an audit; the exit code as of a report: 1 for something at or above --fail-on, 5 if a part could not be read."""
    import msgspec

    code = _code(found, output)
    if output.format == "json":
        text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    else:
        from gpudiag.render import audit

        text = audit.text(found, excerpts=excerpts, **drawing(output))
    put(text, output, found=code == ExitCode.FINDINGS)
    return code


def _code(found: Audit, output: Output) -> ExitCode:
    from gpudiag.model.finding import SEVERITY_ORDER

    worst = max((SEVERITY_ORDER[item.severity] for item in found.items), default=-1)
    if output.fail_on != "never" and worst >= SEVERITY_ORDER[output.fail_on]:
        return ExitCode.FINDINGS
    # Where no target was named nobody asked for its template.
    asked = any("no target was named" not in one.reason for one in found.not_read)
    return ExitCode.PARTIAL if asked else ExitCode.OK
