"""Findings with their evidence, and the runbook page of the chosen one in place."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.assets import assets
from gpudiag.model.report import ReportedFinding
from gpudiag.render.canvas import Segment, cells
from gpudiag.render.page import body_of, rows_of
from gpudiag.render.proof import draw_proof
from gpudiag.render.style import BOLD, CONFIDENCES, DIM, PLAIN, SEVERITIES
from gpudiag.tui.view import Drawn, View, nothing

_PAGE: Final = re.compile(r"GPD\d{3}-[a-z0-9-]+\.md")


def draw(view: View) -> Drawn:
    """All findings as a list, then everything about the chosen one."""
    report = view.report
    canvas = view.canvas()
    names = view.names(canvas)
    if report is None or names is None:
        return nothing(view, "nothing was judged yet")
    if not report.findings:
        return nothing(view, f"no finding: {report.verdict.title}", report.verdict.next_step)
    keys: dict[int, str] = {}
    chosen = min(view.finding, len(report.findings) - 1)
    for number, finding in enumerate(report.findings):
        if not view.filter.keeps(f"{finding.code} {finding.name} {finding.title}"):
            continue
        keys[len(canvas.rows)] = str(number)
        look = SEVERITIES[finding.severity]
        head: list[Segment] = [(f"  {look.mark(plain=view.plain)} {finding.code}  ", look.color)]
        room = canvas.width - cells(head[0][0]) - len(finding.confidence) - 2
        style = BOLD if number == chosen else PLAIN
        canvas.ends([*head, (canvas.fit(finding.title, room), style)], (finding.confidence, CONFIDENCES[finding.confidence]))
    finding = report.findings[chosen]
    canvas.rule()
    canvas.paragraph([(f"{finding.code}  ", SEVERITIES[finding.severity].color)], finding.title, BOLD)
    draw_proof(finding, report, names, canvas)
    canvas.rule()
    page = _page(finding)
    if page is None:
        canvas.row((f"  there is no page {finding.runbook}", DIM))
    else:
        for row in rows_of(page, width=canvas.width):
            canvas.row(*row)
    return Drawn(rows=canvas.rows, keys=keys, start=str(chosen))


def _page(finding: ReportedFinding) -> str | None:
    """The text of its runbook page. The name comes from a report, which may come from anybody: only our own names count."""
    if not _PAGE.fullmatch(finding.runbook):
        return None
    path = next((p for p in assets("runbooks") if p.name == finding.runbook), None)
    # Its title is that of the finding, which stands above.
    return re.sub(r"\A# .*\n+", "", body_of(path.read_text(encoding="utf-8"))) if path is not None else None
