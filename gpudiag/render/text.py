"""A report as text for a terminal: the verdict first, then who waits for whom, then the proof."""

from __future__ import annotations

from gpudiag.model.report import Report
from gpudiag.render.canvas import Canvas
from gpudiag.render.columns import draw_table
from gpudiag.render.drawing import draw_forest
from gpudiag.render.headline import draw_title, draw_verdict, is_live
from gpudiag.render.names import Names
from gpudiag.render.proof import draw_not_read, draw_other, draw_proof
from gpudiag.render.safe import safe
from gpudiag.render.style import DIM
from gpudiag.render.table import rows
from gpudiag.render.tree import forest

MAX_DRAWING_ROWS = 14


def text(report: Report, width: int = 80, color: bool = False, ascii: bool = False) -> str:  # noqa: A002  named as on the command line
    """Draw a report. No line is longer than `width` cells but for commands with a long path, which must stay whole."""
    report = safe(report, plain=ascii)
    canvas = Canvas(width, color=color, plain=ascii)
    _Text(report, canvas).draw()
    return canvas.text()


class _Text:
    def __init__(self, report: Report, canvas: Canvas) -> None:
        self.report = report
        self.canvas = canvas
        self.names = Names(report, ellipsis=canvas.lines.ellipsis)

    def draw(self) -> None:
        draw_title(self.report, self.canvas)
        self.canvas.rule()
        draw_verdict(self.report, self.names, self.canvas)
        self._drawing()
        self._table()
        self._findings()
        self.canvas.rule()
        draw_not_read(self.report.not_read, self.canvas)
        self._cost()

    def _drawing(self) -> None:
        drawn = draw_forest(forest(self.report, self.names), self.names, self.canvas)
        if not drawn:
            return
        self.canvas.rule()
        for row in drawn[:MAX_DRAWING_ROWS]:
            self.canvas.row(*row)
        if len(drawn) > MAX_DRAWING_ROWS:
            self.canvas.row((f"  {self.canvas.lines.ellipsis} and {len(drawn) - MAX_DRAWING_ROWS} more (--json has all)", DIM))

    def _table(self) -> None:
        found = rows(self.report, self.names)
        if found:
            self.canvas.rule()
            draw_table(found, self.canvas)

    def _findings(self) -> None:
        code = self.report.verdict.code
        main = [f for f in self.report.findings if f.code == code][:1]
        for finding in main:
            self.canvas.rule()
            draw_proof(finding, self.report, self.names, self.canvas)
        for finding in self.report.findings:
            if finding not in main:
                self.canvas.rule()
                draw_other(finding, self.report, self.names, self.canvas)

    def _cost(self) -> None:
        cost = self.report.cost
        stopped = f"stopped {cost.stopped_s * 1000:.0f} ms, " if is_live(self.report) else ""
        told = f"{stopped}took {cost.wall_s:.1f} s"
        self.canvas.ends([(told, DIM)], (self.report.generated_at, DIM))
