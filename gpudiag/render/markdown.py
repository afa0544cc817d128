"""A report as Markdown, made for pasting into a bug report: the verdict in one line, then tables, then the proof."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from gpudiag.model.report import Report, ReportedFinding
from gpudiag.model.speculation import SpeculationReport
from gpudiag.render.canvas import Canvas
from gpudiag.render.drawing import draw_forest
from gpudiag.render.names import Names
from gpudiag.render.safe import safe
from gpudiag.render.speculation import numbers
from gpudiag.render.style import SERVER_STATES
from gpudiag.render.table import rows
from gpudiag.render.tree import forest

LIMIT: Final = 65_000
"""Characters. GitHub refuses a text of more than 65,536."""

_ROOM_FOR_NOTE: Final = 400
_SPECIAL: Final = re.compile(r"[\\`*\[\]<>#|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_QUOTED: Final = re.compile("`([^`]+)`")


def markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown of at most 65,000 characters. What had to be left out is said at its end."""
    measured = numbers(report.measurement) if isinstance(report, SpeculationReport) else ""
    report = safe(report)
    page = _Page(LIMIT - _ROOM_FOR_NOTE)
    _summary(report, page)
    _findings(report, page)
    if measured:
        page.add("```text", *measured.splitlines(), "```", "", what="measurement")
    _workers(report, page)
    _drawing(report, page)
    for finding in report.findings:
        _proof(finding, page)
    _not_read(report, page)
    return page.text()


class _Page:
    """Lines up to a limit. A part that does not fit is left out and counted under its name."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._lines: list[str] = []
        self._cut: dict[str, int] = {}

    def add(self, *lines: str, what: str = "", reserve: int = 0) -> bool:
        """Add lines if all of them fit beside `reserve` characters kept for later."""
        size = sum(len(line) + 1 for line in lines)
        if size + reserve > self._room:
            self._cut[what] = self._cut.get(what, 0) + 1
            return False
        self._lines += lines
        self._room -= size
        return True

    def folded(self, title: str, parts: Iterable[Sequence[str]], what: str) -> None:
        """Parts in a section that opens on a click."""
        closing = ["</details>", ""]
        reserve = sum(len(line) + 1 for line in closing)
        if not self.add(f"<details><summary>{title}</summary>", "", what=what, reserve=reserve):
            return
        for part in parts:
            self.add(*part, what=what, reserve=reserve)
        self.add(*closing, what=what)

    def text(self) -> str:
        cut = ", ".join(f"{number} x {what}" for what, number in self._cut.items())
        note = [f"_Cut to fit {LIMIT} characters; left out: {cut}. All of it: `--json`._", ""] if cut else []
        return "\n".join([*self._lines, *note])


def _summary(report: Report, page: _Page) -> None:
    verdict, target = report.verdict, report.target
    if verdict.code is not None:
        head = f"**{verdict.code} {plain(verdict.name or '')}** ({verdict.severity}, {verdict.confidence})"
    else:
        head = f"**{verdict.status}**"
    page.add(f"{head}: {plain(verdict.title)}", "", what="verdict")
    about = [f"gpudiag {plain(report.gpudiag)}"]
    if target is not None:
        about += [
            plain(" ".join(filter(None, (target.engine, target.version)))),
            f"{len(target.workers)} processes",
            f"pid {target.root_pid}",
            SERVER_STATES[target.state].word.lower(),
        ]
    stopped = f"stopped {report.cost.stopped_s * 1000:.0f} ms, took {report.cost.wall_s:.1f} s"
    page.add(" · ".join([*about, f"host {plain(report.host)}", plain(report.generated_at), stopped]), "", what="verdict")
    for culprit in verdict.culprits[:8]:
        who = [f"rank {culprit.rank}"] if culprit.rank is not None else [code(culprit.node)]
        who += [f"pid {culprit.pid}"] if culprit.pid is not None else []
        who += [f"thread {culprit.tid}"] if culprit.tid not in (None, culprit.pid) else []
        if culprit.file:
            who.append(f"{code(culprit.function or '?')} at {code(f'{culprit.file}:{culprit.line}')}")
        if culprit.path:
            who.append(code(culprit.path))
        page.add(f"- {', '.join(who)}", what="culprit")
    if len(verdict.culprits) > 8:
        page.add(f"- and {len(verdict.culprits) - 8} more", what="culprit")
    if verdict.next_step:
        page.add(*([""] if verdict.culprits else []), f"Next: {step(verdict.next_step)}", what="verdict")
    page.add("", what="verdict")


def _findings(report: Report, page: _Page) -> None:
    if not report.findings:
        return
    page.add("| code | finding | severity | confidence |", "|---|---|---|---|", what="finding")
    for finding in report.findings:
        page.add(f"| {finding.code} | {plain(finding.title)} | {finding.severity} | {finding.confidence} |", what="finding")
    page.add("", what="finding")


def _workers(report: Report, page: _Page) -> None:
    found = rows(report, Names(report))
    if not found:
        return
    page.add("| rank | pid | role | state | where | waits for |", "|---|---|---|---|---|---|", what="worker")
    for row in found:
        rank = f"**{row.rank}**" if row.culprit and row.rank else row.rank
        cells = (rank, row.pid, code(row.role), plain(row.look.word), code(row.where), code(row.waits_for))
        page.add(f"| {' | '.join(cells)} |", what="worker")
    page.add("", what="worker")


def _drawing(report: Report, page: _Page) -> None:
    canvas = Canvas(100, color=False, plain=False)
    names = Names(report)
    for row in draw_forest(forest(report, names), names, canvas):
        canvas.row(*row)
    if drawn := canvas.text():
        page.add("Who waits for whom:", "", *fence(drawn.rstrip("\n")), "", what="drawing")


def _proof(finding: ReportedFinding, page: _Page) -> None:
    def parts() -> Iterable[Sequence[str]]:
        for evidence in finding.evidence:
            yield f"- {plain(evidence.source)}: {plain(evidence.claim)}", "", *_quoted(evidence.excerpt)
        for number, told in enumerate(finding.next_steps, 1):
            yield (f"{number}. {step(told)}",)
        yield ("",)

    page.folded(f"{finding.code}: evidence and next steps", parts(), f"evidence of {finding.code}")


def _quoted(excerpt: str) -> list[str]:
    return [*(f"  {line}" for line in fence(excerpt)), ""] if excerpt.strip() else []


def _not_read(report: Report, page: _Page) -> None:
    if not report.not_read:
        return
    parts = [(f"- {plain(n.source)}: {plain(n.reason)}{f' ({code(n.help)})' if n.help else ''}",) for n in report.not_read]
    page.folded(f"not read: {len(parts)}", [*parts, ("",)], "source that was not read")


def plain(text: str) -> str:
    """Text in which nothing is Markdown, HTML, a mention, a reference to an issue or a link."""
    escaped = _SPECIAL.sub(lambda m: {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(m.group(), f"\\{m.group()}"), text)
    # GitHub makes mentions and links of @name and http:// whatever is escaped; an empty comment between the parts stops it.
    return escaped.replace("@", "@<!-- -->").replace("://", ":<!-- -->//").replace("\\#", "#<!-- -->")


def step(text: str) -> str:
    """A sentence of ours: what stands between backticks is a command. Around and inside it everything is neutralised."""
    parts = _QUOTED.split(text)
    return "".join(code(part) if number % 2 else plain(part) for number, part in enumerate(parts))


def code(text: str) -> str:
    """Text as code that also holds in a table. A backtick would end it and a bar would end the cell."""
    if not text:
        return ""
    inside = text.replace("`", "\\x60").replace("|", "\\x7c")
    return f"`{inside}`"


def fence(text: str) -> list[str]:
    """Lines as a block of code whose fence is longer than any run of backticks in them."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    mark = "`" * max(3, longest + 1)
    return [f"{mark}text", *text.split("\n"), mark]
