"""How wide, how coloured and with which characters a page is drawn, for commands that draw their own."""

from __future__ import annotations

import sys
from typing import TypedDict

from gpudiag.cli.output import Output, terminal_width, use_color
from gpudiag.cli.writing import deliver


class Drawing(TypedDict):
    """Arguments of a function that draws."""

    width: int
    color: bool
    plain: bool


def drawing(output: Output) -> Drawing:
    to_terminal = output.file is None and sys.stdout.isatty()
    unicode = output.file is not None or "utf" in (sys.stdout.encoding or "").lower()
    return Drawing(
        width=terminal_width(to_terminal), color=use_color(output.color, to_terminal), plain=output.ascii or not unicode
    )


def put(text: str, output: Output, *, found: bool = False) -> None:
    """Print a page, or write it to the file. `found` says whether the exit code is going to tell of findings."""
    deliver(text, output.file, found=found)
