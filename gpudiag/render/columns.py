"""Draws the workers as a table that fits the canvas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudiag.render.canvas import Canvas, Segment, cells, pad
from gpudiag.render.style import BOLD, DIM, PLAIN, SEVERITIES
from gpudiag.render.table import Row

NARROW = 72
"""Below this width the role has no column: the rank says most of it."""
_GAP = "  "


def draw_table(found: Sequence[Row], canvas: Canvas) -> None:
    table = _Table(found, canvas)
    table.head()
    for row in found:
        table.row(row)


class _Table:
    def __init__(self, found: Sequence[Row], canvas: Canvas) -> None:
        self._canvas = canvas
        self._role = canvas.width >= NARROW
        self._gpu = any(r.gpu for r in found)
        self._titles = [
            "rank",
            "pid",
            *(["role"] if self._role else []),
            *(["gpu"] if self._gpu else []),
            "state",
            "where",
            "waits for",
        ]
        self._state = len(self._titles) - 3
        self._widths = self._measure([self._texts(r) for r in found])

    def head(self) -> None:
        self._canvas.row((_GAP + _GAP.join(pad(t, w) for t, w in zip(self._titles, self._widths, strict=True)), DIM))

    def row(self, row: Row) -> None:
        styles = [BOLD if row.culprit else PLAIN] * len(self._titles)
        styles[self._state] = row.look.color
        error = SEVERITIES["error"]
        segments: list[Segment] = [(f"{error.mark(plain=self._canvas.plain) if row.culprit else ' '} ", error.color)]
        for content, width, style in zip(self._texts(row), self._widths, styles, strict=True):
            segments += [(pad(self._cell(content, width), width), style), (_GAP, PLAIN)]
        self._canvas.row(*segments[:-1])

    def _texts(self, row: Row) -> list[str]:
        state = f"{row.look.mark(plain=self._canvas.plain)} {row.look.word}"
        return [
            row.rank,
            row.pid,
            *([row.role] if self._role else []),
            *([row.gpu] if self._gpu else []),
            state,
            row.where,
            row.waits_for,
        ]

    def _measure(self, found: Sequence[Sequence[str]]) -> list[int]:
        """Widths of the columns. `where` and `waits for` share what the others leave, as far as they need it."""
        most = {"rank": 14 if self._role else 8, "pid": 8, "role": 12, "gpu": 8, "state": 12}
        needed = [_widest((row[i] for row in found), title) for i, title in enumerate(self._titles)]
        fixed = [min(width, most[title]) for width, title in zip(needed, self._titles[:-2], strict=False)]
        room = self._canvas.width - len(_GAP) * (len(fixed) + 2) - sum(fixed)
        where, waits = needed[-2:]
        if where + waits > room:
            waits = min(waits, max(len("waits for"), room // 3))
            where = room - waits
        return [*fixed, where, waits]

    def _cell(self, content: str, width: int) -> str:
        """A place keeps its function before its file; anything else loses its middle."""
        if cells(content) <= width:
            return content
        function, _, place = content.rpartition(" ")
        if function and place.rpartition(":")[2].isdigit() and cells(function) <= width:
            return function
        return self._canvas.fit(content, width)


def _widest(texts: Iterable[str], title: str) -> int:
    return max(cells(title), *(cells(t) for t in texts))
