"""Writes docs/gpudiag.1, the manual page, from the commands' own help.

python docs/make_manual.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpudiag.cli.group import EPILOG, gpudiag

PAGE = Path(__file__).with_name("gpudiag.1")
FILES = """\
.TP
.I ~/.local/state/gpudiag/runs
What \\fBgpudiag launch\\fR keeps of each start (\\fBXDG_STATE_HOME\\fR).
.TP
.I ~/.config/gpudiag/profiles
Profiles of your own for \\fBgpudiag launch\\fR (\\fBXDG_CONFIG_HOME\\fR).
"""
ENVIRONMENT = """\
.TP
.B NO_COLOR
No colour, whatever the terminal can do.
.TP
.B GPUDIAG_DEBUG
Show the traceback of an internal error.
"""


def roff(text: str) -> str:
    """Text for a line of the page: backslashes, hyphens of options, and dots at the start are made safe."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", safe, flags=re.MULTILINE)


def paragraphs(help: str) -> Iterator[str]:
    for block in help.replace("\f", "").split("\n\n"):
        if block.startswith("\b"):
            yield ".nf\n" + roff(block.removeprefix("\b").strip("\n")) + "\n.fi"
        else:
            yield roff(" ".join(block.split()))


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not isinstance(parameter, click.Option) or parameter.hidden or "--help" in parameter.opts:
            continue
        said = roff(" ".join(record[1].split())) or "\\&"
        yield f".TP\n.B {roff(record[0])}\n{said}"


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The command and those below it, each with its full name."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None and not found.hidden:
                yield from commands(found, f"{name} {below}")


def page() -> str:
    lines = [
        ".\\\" Made by docs/make_manual.py from the commands' help; do not edit.",
        ".TH GPUDIAG 1",
        ".SH NAME",
        "gpudiag \\- say which rank, thread and line holds up a hung SGLang or vLLM server",
        ".SH SYNOPSIS",
        ".B gpudiag",
        "[\\fICOMMAND\\fR] [\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        *_joined(paragraphs(gpudiag.help or "")),
    ]
    for name, command in commands(gpudiag, "gpudiag"):
        if command is gpudiag:
            continue
        context = click.Context(command, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f".SH {name.upper()}", f".B {roff(name)}", roff(usage), ".PP", *_joined(paragraphs(command.help or ""))]
        lines += list(options(command, context))
    lines += [".SH FILES", FILES.rstrip(), ".SH ENVIRONMENT", ENVIRONMENT.rstrip()]
    lines += [".SH EXAMPLES AND EXIT STATUS", *_joined(paragraphs(EPILOG)), ".SH SEE ALSO", ".BR py\\-spy (1)"]
    return "\n".join(lines) + "\n"


def _joined(blocks: Iterator[str]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        if number:
            yield ".PP"
        yield block


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return 0 if PAGE.is_file() and PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
