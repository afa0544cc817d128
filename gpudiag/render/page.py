"""A runbook page drawn for a terminal."""

from __future__ import annotations

import io
import re


def draw(page: str, *, width: int = 80, color: bool = False) -> str:
    """Markdown as text of at most `width` columns. Only for our own pages: nothing is neutralised."""
    from rich.console import Console
    from rich.markdown import Markdown

    # Coloured syntax would cut a command into pieces that no longer stand out as one.
    page = re.sub(r"^(\s*```)\w+$", r"\1text", page, flags=re.MULTILINE)
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="256" if color else None,
        legacy_windows=False,
        emoji=False,
    )
    console.print(Markdown(page, hyperlinks=False))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
