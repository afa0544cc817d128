"""A runbook page drawn for a terminal."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from gpudiag.render.canvas import Segment

if TYPE_CHECKING:
    from rich.markdown import Markdown


def draw(page: str, *, width: int = 80, color: bool = False) -> str:
    """Markdown as text of at most `width` columns. Only for our own pages: nothing is neutralised."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="256" if color else None,
        legacy_windows=False,
        emoji=False,
    )
    console.print(_markdown(page))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def rows_of(page: str, *, width: int) -> list[list[Segment]]:
    """The same as rows of text and style, for a canvas."""
    from rich.console import Console
    from rich.theme import Theme

    # One accent is enough on a screen: headings and code stand out by weight.
    calm = Theme({f"markdown.{name}": "bold" for name in ("h1", "h2", "h3", "h4", "code", "strong", "item.number")})
    console = Console(width=width, legacy_windows=False, emoji=False, file=io.StringIO(), color_system=None, theme=calm)
    lines = console.render_lines(_markdown(page), console.options.update(width=width), pad=False)
    return [[(s.text, str(s.style or "") if str(s.style or "") != "none" else "") for s in line] for line in lines]


def body_of(page: str) -> str:
    """The page without the fields between two lines of `---` at its top."""
    match = re.match(r"---\n.*?\n---\n\n?", page, re.DOTALL)
    return page[match.end() :] if match else page


def _markdown(page: str) -> Markdown:
    from rich.markdown import Markdown

    # Coloured syntax would cut a command into pieces that no longer stand out as one.
    page = re.sub(r"^(\s*```)\w+$", r"\1text", page, flags=re.MULTILINE)
    return Markdown(page, hyperlinks=False)
