"""A table of fixed column widths: numbers to the right with their unit in the head, columns that come with the width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from gpudiag.render.canvas import Canvas, Segment, cells, pad
from gpudiag.render.style import DIM, PLAIN

GAP = "  "


class Column(Struct, frozen=True, kw_only=True):
    """`width` is the least it needs; `grow` columns share what is left, each up to `most`.

    `wide` is the canvas width from which it is there.
    """

    title: str
    width: int
    align: Literal["left", "right"] = "left"
    grow: int = 0
    most: int = 1000
    wide: int = 0


class Cell(Struct, frozen=True, kw_only=True):
    """Text and style; or `runs` of several styles, which fill the column as they are."""

    text: str
    style: str = PLAIN
    runs: tuple[Segment, ...] = ()


class Grid:
    """Draws rows of cells under a head. Columns that are not there at this width are left out of every row."""

    def __init__(self, columns: Sequence[Column], canvas: Canvas, *, margin: int = 2) -> None:
        self._canvas = canvas
        self._margin = margin
        self._shown = [n for n, column in enumerate(columns) if canvas.width >= column.wide]
        self._columns = [columns[n] for n in self._shown]
        self._widths = self._share()

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self._columns]

    def head(self, sorted_by: str | None = None, *, reverse: bool = False) -> None:
        segments: list[Segment] = [(" " * self._margin, PLAIN)]
        for column, width in zip(self._columns, self._widths, strict=True):
            arrow = (self._canvas.lines.up if reverse else self._canvas.lines.down) if column.title == sorted_by else ""
            text = f"{arrow}{column.title}" if column.align == "right" else f"{column.title}{arrow}"
            segments += [(self._aligned(text, column, width), DIM), (GAP, DIM)]
        self._canvas.row(*segments[:-1])

    def row(self, values: Sequence[Cell], mark: Sequence[Segment] = ()) -> None:
        """One row; `mark` fills the margin."""
        used = sum(cells(text) for text, _ in mark)
        segments: list[Segment] = [*mark, (" " * (self._margin - used), PLAIN)]
        for n, column, width in zip(self._shown, self._columns, self._widths, strict=True):
            cell = values[n]
            segments += [*(cell.runs or [(self._aligned(cell.text, column, width), cell.style)]), (GAP, PLAIN)]
        self._canvas.row(*segments[:-1])

    def _aligned(self, text: str, column: Column, width: int) -> str:
        fitted = self._fitted(text, width)
        return " " * (width - cells(fitted)) + fitted if column.align == "right" else pad(fitted, width)

    def _fitted(self, text: str, width: int) -> str:
        """A place keeps its function before its file; anything else loses its middle."""
        if cells(text) <= width:
            return text
        function, _, place = text.rpartition(" ")
        if function and place.rpartition(":")[2].isdigit() and cells(function) <= width:
            return function
        return self._canvas.fit(text, width)

    def _share(self) -> list[int]:
        fixed = sum(c.width for c in self._columns) + len(GAP) * (len(self._columns) - 1) + self._margin
        left = max(0, self._canvas.width - fixed)
        parts = sum(c.grow for c in self._columns)
        return [min(max(c.most, c.width), c.width + (left * c.grow // parts if parts else 0)) for c in self._columns]
