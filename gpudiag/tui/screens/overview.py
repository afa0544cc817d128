"""The first screen: the verdict, the culprit, and what every rank does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from gpudiag.model.report import Report
from gpudiag.render.canvas import Canvas, Segment
from gpudiag.render.drawing import draw_forest
from gpudiag.render.headline import draw_verdict
from gpudiag.render.names import Names
from gpudiag.render.proof import draw_not_read
from gpudiag.render.style import BOLD, DIM, PLAIN, SEVERITIES, VERMILION, worker_look
from gpudiag.render.table import Row, rows
from gpudiag.render.tree import forest
from gpudiag.tui.frame import Frame, Measure
from gpudiag.tui.grid import Cell, Column, Grid
from gpudiag.tui.view import Drawn, View, nothing

_HISTORY: Final = 24
_LONG_HISTORY: Final = 60
"""Looks that the lane of a rank goes back, where there is room for it, and where there is much."""
_NO_MEASURE: Final = Measure()
_TIGHT: Final = 72
"""Below this width some columns are left out; the rank and its state say most."""
_RANK: Final = 6
"""Cells for a rank that stands alone."""
_VERY_WIDE: Final = 180
_NEVER: Final = 1 << 30
MAX_DRAWING_ROWS: Final = 24


def draw(view: View) -> Drawn:
    """Verdict, lanes, who waits for whom, what could not be read."""
    report = view.report
    canvas = view.canvas()
    names = view.names(canvas)
    if report is None or names is None:
        return nothing(view, "nothing was looked at yet")
    draw_verdict(report, names, canvas)
    keys = _Lanes(view, report, names, canvas).draw() if view.workers else {}
    drawn = draw_forest(forest(report, names), names, canvas)
    if drawn:
        canvas.rule()
        for row in drawn[:MAX_DRAWING_ROWS]:
            canvas.row(*row)
        if len(drawn) > MAX_DRAWING_ROWS:
            canvas.row((f"  {canvas.lines.ellipsis} and {len(drawn) - MAX_DRAWING_ROWS} more", DIM))
    if report.not_read:
        canvas.rule()
        draw_not_read(report.not_read, canvas)
    return Drawn(rows=canvas.rows, keys=keys, start=_culprit(view, keys))


def _culprit(view: View, keys: dict[int, str]) -> str | None:
    chosen = view.chosen
    return str(chosen.pid) if chosen is not None and str(chosen.pid) in keys.values() else None


class _Lanes:
    """The table of ranks. Rows that do the same are put together if there is no room for each."""

    def __init__(self, view: View, report: Report, names: Names, canvas: Canvas) -> None:
        self._view = view
        self._report = report
        self._names = names
        self._canvas = canvas
        self._frame: Frame = view.frame
        measures = list(view.frame.measures.values())
        self._gpu = any(m.gpu is not None for m in measures)
        self._back = _LONG_HISTORY if canvas.width >= _VERY_WIDE else _HISTORY
        self._nccl = any(m.launched is not None for m in measures)

    def draw(self) -> dict[int, str]:
        """Row of the canvas by row, with the key of the process there."""
        self._canvas.rule()
        found = [r for r in self._rows() if self._view.filter.keeps(f"{r.rank} {r.role} {r.look.word} {r.where} {r.waits_for}")]
        counts = max((len(self._launched(row)[0]) for row in found), default=0)
        grid = Grid(self._columns(grouped=any(len(r.pids) > 1 for r in found), counts=counts), self._canvas)
        grid.head(self._view.sort, reverse=self._view.reverse)
        keys = {}
        error = SEVERITIES["error"]
        for row in self._sorted(found):
            keys[len(self._canvas.rows)] = str(row.pids[0])
            mark: list[Segment] = [(f" {error.mark(plain=self._canvas.plain)}", error.color)] if row.culprit else []
            grid.row(self._cells(row), mark)
        return keys

    def _rows(self) -> list[Row]:
        """Each process alone if there is room below the verdict, or as it was asked for."""
        single = rows(self._report, self._names, group=False)
        room = self._view.height - len(self._canvas.rows) - 1
        grouped = self._view.grouped if self._view.grouped is not None else len(single) > max(room, 4)
        return rows(self._report, self._names, group=True) if grouped else single

    def _columns(self, *, grouped: bool, counts: int) -> list[Column]:
        """The columns; that of counts is as wide as the widest of them, since half a number is none."""
        rank = 10 if grouped and self._canvas.width >= 100 else _RANK
        return [
            Column(title="rank", width=rank),
            Column(title="pid", width=8, align="right", wide=100 if self._gpu else _TIGHT),
            Column(title="role", width=11, wide=110),
            Column(title="gpu", width=5 if grouped else 3, align="right", wide=_TIGHT if self._gpu else _NEVER),
            Column(title="state", width=11),
            Column(title="cpu%", width=5, align="right", wide=0 if not self._gpu else 140),
            Column(
                title="W",
                width=7 if grouped and self._canvas.width >= _TIGHT else 4,
                align="right",
                wide=0 if self._gpu else _NEVER,
            ),
            Column(title="sm%", width=4, align="right", wide=_TIGHT if self._gpu else _NEVER),
            Column(title="nccl", width=max(4, counts), align="right", wide=0 if self._nccl else _NEVER),
            Column(title="where", width=10, grow=3, most=60),
            Column(title="waits for", width=9, grow=1, most=24),
            Column(title="last looks", width=self._back, wide=130),
        ]

    def _cells(self, row: Row) -> list[Cell]:
        strong = BOLD if row.culprit else PLAIN
        measures = self._measures(row)
        launched, late = self._launched(row)
        return [
            Cell(text=row.rank or self._short(row.role), style=strong),
            Cell(text=row.pid, style=DIM if not row.culprit else strong),
            Cell(text=row.role, style=DIM),
            Cell(text=_span([m.gpu for m in measures]), style=strong),
            Cell(text=f"{row.look.mark(plain=self._canvas.plain)} {row.look.word}", style=row.look.color),
            Cell(text=_span([m.cpu_percent for m in measures]), style=strong),
            Cell(text=_span([m.power_w for m in measures]), style=strong),
            Cell(text=_span([m.sm_percent for m in measures]), style=strong),
            Cell(text=launched, style=f"bold {VERMILION}" if late else strong),
            Cell(text=row.where, style=strong),
            Cell(text=row.waits_for, style=strong),
            Cell(text="", runs=self._history(row)),
        ]

    def _measures(self, row: Row) -> list[Measure]:
        return [self._frame.measures.get(pid, _NO_MEASURE) for pid in row.pids]

    def _launched(self, row: Row) -> tuple[str, bool]:
        """How many collectives were launched, with how many are missing, and whether any is."""
        measures = self._measures(row)
        lag = max((m.behind for m in measures), default=0)
        launched = _span([m.launched for m in measures])
        return (f"{launched} -{lag}" if lag else launched), lag > 0

    def _short(self, role: str) -> str:
        """What stands for a rank where there is none and no column for roles: the beginning tells more than the end."""
        if self._canvas.width >= 110:
            return ""
        ellipsis = self._canvas.lines.ellipsis
        return role if len(role) <= _RANK else role[: _RANK - len(ellipsis)] + ellipsis

    def _history(self, row: Row) -> tuple[Segment, ...]:
        """The state glyph of each of the last looks: where it changes, the rank began to wait."""
        states = [m.states.get(row.pids[0], "") for m in self._view.moments[-self._back :]]
        runs: list[Segment] = [(" " * (self._back - len(states)), PLAIN)]
        for state, group in itertools.groupby(states):
            look = worker_look(state)
            mark = look.mark(plain=self._canvas.plain) if state else " "
            runs.append((mark * len(list(group)), look.color))
        return tuple(runs)

    def _sorted(self, found: list[Row]) -> list[Row]:
        order = self._view.sort
        if order in (None, "rank"):
            return found[::-1] if self._view.reverse else found

        def key(row: Row) -> tuple[bool, float, str]:
            measure = self._frame.measures.get(row.pids[0], _NO_MEASURE)
            value = {"cpu%": measure.cpu_percent, "W": measure.power_w, "nccl": measure.launched}.get(order or "")
            return (value is None, -(value or 0.0), row.look.word)

        return sorted(found, key=key, reverse=self._view.reverse)


def _span(values: Sequence[float | None]) -> str:
    """One number, or 'lowest-highest' of several, without decimals; empty where nothing is known."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return ""
    low, high = f"{known[0]:.0f}", f"{known[-1]:.0f}"
    return low if low == high else f"{low}-{high}"
