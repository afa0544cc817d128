"""The one widget: rows of styled text, of which only those that changed are drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.segment import Segment as RichSegment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpudiag.render.canvas import Segment
from gpudiag.tui.view import Drawn


class Lines(Widget, can_focus=False):
    """Rows, the first few fixed, the rest scrolled so that the chosen row shows."""

    def __init__(self, *, id: str, height: int | str = "1fr", plain: bool = False) -> None:
        super().__init__(id=id)
        self.plain = plain
        self.styles.height = height
        self.top = 0
        self.cursor: int | None = None
        self._drawn = Drawn(rows=[])
        self._shown: list[tuple[Segment, ...]] = []

    @property
    def drawn(self) -> Drawn:
        return self._drawn

    @property
    def last_top(self) -> int:
        """The highest row that the part below the fixed rows can begin with."""
        return max(0, len(self._drawn.rows) - max(1, self.size.height))

    def show(self, drawn: Drawn, *, top: int = 0, cursor: int | None = None) -> None:
        """Show these rows from `top` on. Only what differs from what stands there is drawn."""
        self._drawn = drawn
        self.top = max(0, min(top, self.last_top))
        self.cursor = cursor
        fresh = [self._row(y) for y in range(self.size.height)]
        if len(fresh) != len(self._shown):
            self._shown = fresh
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(self._shown, fresh, strict=True)) if old != new]
        self._shown = fresh
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def _row(self, y: int) -> tuple[Segment, ...]:
        """Segments of the row at height y of the widget."""
        index = y if y < self._drawn.fixed else y + self.top
        rows = self._drawn.rows
        row = tuple(rows[index]) if 0 <= index < len(rows) else ()
        return marked(row, plain=self.plain) if index == self.cursor else row

    def render_line(self, y: int) -> Strip:
        row = self._row(y) if y >= len(self._shown) else self._shown[y]
        base = self.rich_style
        segments = [RichSegment(text, base + _style(style)) for text, style in row]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def on_resize(self) -> None:
        self._shown = []


@lru_cache(maxsize=256)
def _style(style: str) -> Style:
    return Style.parse(style) if style else Style.null()


def marked(row: Sequence[Segment], *, plain: bool) -> tuple[Segment, ...]:
    """The chosen row: bold, with a pointer in its first cell if that is free. It shows without colour too."""
    segments = [(text, f"bold {style}".strip().replace("dim", "")) for text, style in row]
    if segments and segments[0][0].startswith(" "):
        segments[0] = ((">" if plain else "▸") + segments[0][0][1:], segments[0][1])
    return tuple(segments)
