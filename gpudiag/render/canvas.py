"""Lines of styled text of a fixed width. rich measures and colours them; it is imported only when a report is drawn."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from gpudiag.render.plain import middle
from gpudiag.render.style import ASCII, DIM, PLAIN, UNICODE, Lines

_UNIT = re.compile(r"[^\s`]*`[^`]+`[^\s`]*|\S+")

Segment = tuple[str, str]
"""Text and rich style."""


class Canvas:
    """Collects lines in `rows`. Nothing written to it is longer than `width`, unless it is said so."""

    def __init__(self, width: int, *, color: bool, plain: bool) -> None:
        self.width = width
        self.plain = plain
        self.lines: Lines = ASCII if plain else UNICODE
        self._color = color
        self.rows: list[list[Segment]] = []

    def row(self, *segments: Segment) -> None:
        """One line as it is. The caller has made it fit."""
        self.rows.append(list(segments))

    def rule(self) -> None:
        self.row((self.lines.rule * self.width, DIM))

    def blank(self) -> None:
        self.row()

    def ends(self, left: Sequence[Segment], right: Segment) -> None:
        """A line with something at its right edge."""
        used = sum(cells(text) for text, _ in left) + cells(right[0])
        self.row(*left, (" " * max(1, self.width - used), PLAIN), right)

    def paragraph(self, head: Sequence[Segment], text: str, style: str = PLAIN, *, right: Segment | None = None) -> None:
        """Text broken at words, hanging below where it begins. `right` stands at the right edge of the first line.

        A word or command that is too long for a line gets a line of its own and is not broken: the terminal wraps it, and
        it can still be copied.
        """
        indent = sum(cells(t) for t, _ in head)
        room = self.width - indent
        first = room - (cells(right[0]) + 2 if right else 0)
        rows = wrap(text, first, room)
        for number, row in enumerate(rows):
            # A command that is too long gets what room there is to its left before it sticks out on the right.
            left = min(indent, max(2, self.width - cells(row))) if "`" in row else indent
            start = list(head) if number == 0 else [(" " * left, PLAIN)]
            if number == 0 and right:
                self.ends([*start, (row, style)], right)
            else:
                self.row(*start, (row, style))

    def fit(self, text: str, width: int) -> str:
        """The text cut in the middle to a number of cells."""
        size = width
        cut = middle(text, size, ellipsis=self.lines.ellipsis)
        while cells(cut) > width and size > 1:
            size -= 1
            cut = middle(text, size, ellipsis=self.lines.ellipsis)
        return cut

    def text(self) -> str:
        if not self._color:
            return "".join("".join(text for text, _ in row).rstrip() + "\n" for row in self.rows)
        from rich.console import Console
        from rich.text import Text

        out = io.StringIO()
        console = Console(
            file=out, force_terminal=True, color_system="256", width=10_000, legacy_windows=False, highlight=False, emoji=False
        )
        for row in self.rows:
            line = Text.assemble(*row)
            line.rstrip()
            console.print(line, soft_wrap=True)
        return out.getvalue()


def cells(text: str) -> int:
    """Columns that a text takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad(text: str, width: int) -> str:
    return text + " " * max(0, width - cells(text))


def wrap(text: str, first: int, rest: int) -> list[str]:
    """Rows of at most `first` and then `rest` cells, broken at spaces but not inside `quoted commands`; at least one row."""
    rows: list[str] = []
    current = ""
    for word in _UNIT.findall(text):
        room = rest if rows else first
        joined = f"{current} {word}" if current else word
        if current and cells(joined) > room:
            rows.append(current)
            current = word
        else:
            current = joined
    return [*rows, current]
