"""A runbook page drawn for a terminal."""

from __future__ import annotations

import io


def draw(page: str, *, width: int = 80, color: bool = False) -> str:
    """Markdown as text of at most `width` columns. Only for our own pages: nothing is neutralised."""
    from rich.console import Console
    from rich.markdown import Markdown

    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="256" if color else None,
        legacy_windows=False,
        emoji=False,
    )
    console.print(Markdown(page, hyperlinks=False, code_theme="ansi_dark"))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))
