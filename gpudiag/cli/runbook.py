"""gpudiag runbook: the page behind a finding."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import click

from gpudiag.cli.output import ColorWhen, color_option, terminal_width, use_color
from gpudiag.errors import UsageError

_CODE: Final = re.compile(r"(?:GPD)?(\d{3})", re.IGNORECASE)
_NAME: Final = re.compile(r"GPD\d{3}-[a-z0-9-]+\.md")


@click.command()
@click.argument("code", required=False)
@color_option
def runbook(*, code: str | None, color: ColorWhen) -> None:
    """Print the page of a finding, such as GPD307 or 307. Without CODE, list the pages."""
    pages = _pages()
    if code is None:
        for page in pages.values():
            click.echo(summary(page.read_text(encoding="utf-8")))
        return
    match = _CODE.fullmatch(code)
    path = pages.get(f"GPD{match[1]}") if match else None
    if path is None:
        raise UsageError(f"there is no page for {code}", help="gpudiag runbook")
    click.echo(_shown(path.read_text(encoding="utf-8"), color), nl=False, color=True)


def _pages() -> dict[str, Path]:
    """Path of each page by its code."""
    from gpudiag.assets import assets

    return {path.name[:6]: path for path in assets("runbooks") if _NAME.fullmatch(path.name)}


def summary(page: str) -> str:
    """One line of the list: code, severity, name and title."""
    fields, body = front_matter(page)
    title = next((line[2:].strip() for line in body.splitlines() if line.startswith("# ")), "")
    code, severity, name = (fields.get(key, "") for key in ("code", "severity", "name"))
    return f"{code:<7} {severity:<8} {name:<32} {fields.get('title', title)}".rstrip()


def front_matter(page: str) -> tuple[dict[str, str], str]:
    """The `key: value` lines between two lines of `---` at the top, and what follows. Both may be empty."""
    lines = page.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        return {}, page
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        return {}, page
    pairs = (line.partition(":") for line in lines[1:end] if not line.startswith((" ", "#")))
    fields = {key.strip(): value.strip().strip("\"'") for key, colon, value in pairs if colon}
    return fields, "".join(lines[end + 1 :]).lstrip("\n")


def _shown(page: str, color: ColorWhen) -> str:
    """As it is for a pipe, so that it can be searched and pasted; drawn for a terminal."""
    to_terminal = sys.stdout.isatty()
    if not to_terminal and color != "always":
        return page
    from gpudiag.render.page import draw

    return draw(front_matter(page)[1], width=terminal_width(to_terminal), color=use_color(color, to_terminal))
