"""What a finding rests on: who only waits because of it, the evidence with its excerpts, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudiag.model.finding import Evidence
from gpudiag.model.report import NotRead, Report, ReportedFinding
from gpudiag.render.canvas import Canvas, Segment, cells, pad, wrap
from gpudiag.render.names import Names
from gpudiag.render.plain import short_path, tidy
from gpudiag.render.style import CONFIDENCES, DIM, PLAIN, SEVERITIES
from gpudiag.render.tree import plain_node

_NUMBER = re.compile(r"\d+")
_TOLD = frozenset({"traceback", "log-line", "exit-status", "kernel-log", "collective-watchdog"})
"""Sources whose excerpts are sentences."""

MAX_EVIDENCE = 12
MAX_EXCERPT_ROWS = 6
MAX_CONSEQUENCES = 6


def draw_proof(finding: ReportedFinding, report: Report, names: Names, canvas: Canvas) -> None:
    """Everything about the finding that the verdict names."""
    proof = _Proof(report, names, canvas)
    proof.consequences(finding)
    proof.evidence(finding)
    proof.steps(finding)


def draw_other(finding: ReportedFinding, report: Report, names: Names, canvas: Canvas) -> None:
    """A finding beside the verdict, shorter."""
    look = SEVERITIES[finding.severity]
    head: list[Segment] = [(f"{look.mark(plain=canvas.plain)} {finding.code}  ", look.color)]
    canvas.paragraph(head, finding.title, right=(finding.confidence, CONFIDENCES[finding.confidence]))
    _Proof(report, names, canvas).evidence(finding, limit=3)
    for step in finding.next_steps[:1]:
        canvas.paragraph([("  next    ", DIM)], step)


def draw_not_read(missing: Sequence[NotRead], canvas: Canvas) -> None:
    """Sources that could not be read, those that the same command would open together."""
    asked: dict[str, dict[str, list[str]]] = {}
    for one in missing:
        asked.setdefault(one.help, {}).setdefault(one.reason, []).append(one.source)
    for help, reasons in asked.items():
        for reason, sources in reasons.items():
            canvas.paragraph([("not read  ", DIM)], f"{_sources(sources)}: {reason}")
        if help:
            canvas.paragraph([(f"          {canvas.lines.arrow} ", DIM)], help)


class _Proof:
    def __init__(self, report: Report, names: Names, canvas: Canvas) -> None:
        self.report = report
        self.canvas = canvas
        self.names = names

    def consequences(self, finding: ReportedFinding) -> None:
        waiters = {w.waiter for w in self.report.waits}
        if not any(c.node in waiters for c in finding.consequences):
            self._told_consequences(finding)
            return
        culprits = {plain_node(c.node) for c in self.report.verdict.culprits}
        others = [n for c in finding.consequences if (n := plain_node(c.node)) not in culprits]
        if not others:
            return
        who = self.names.many(others)
        only = "only waits" if len(others) == 1 else "only wait"
        self.canvas.paragraph([("because of it  ", DIM)], f"{who} {only}; nothing is wrong there")

    def _told_consequences(self, finding: ReportedFinding) -> None:
        """What others wrote because of the cause: it often comes last in a log, and is loudest."""
        titles = list(dict.fromkeys(c.title for c in finding.consequences))
        if not titles:
            return
        self.canvas.row(("because of it", DIM))
        for title in titles[:MAX_CONSEQUENCES]:
            for row, part in enumerate(wrap(tidy(title), self.canvas.width - 2, self.canvas.width - 4)):
                indent = "    " if row else "  "
                self.canvas.row((indent, PLAIN), (self.canvas.fit(part, self.canvas.width - len(indent)), PLAIN))
        if len(titles) > MAX_CONSEQUENCES:
            self.canvas.row((f"  {self.canvas.lines.ellipsis} {len(titles) - MAX_CONSEQUENCES} more (--json has all)", DIM))

    def evidence(self, finding: ReportedFinding, limit: int = MAX_EVIDENCE) -> None:
        self.canvas.row(("evidence", DIM))
        told = _alike(finding.evidence)
        size = max((cells(e.source) for e, _ in told[:limit]), default=0)
        for evidence, more in told[:limit]:
            self.canvas.paragraph(
                [(f"  {pad(evidence.source, size)}  ", DIM)],
                self._claim(evidence.claim) + (f" (and {more} more like it)" if more else ""),
            )
            self._excerpt(evidence, " " * (size + 4) + self.canvas.lines.quote)
        if len(told) > limit:
            self.canvas.row((f"  {self.canvas.lines.ellipsis} {len(told) - limit} more (--json has all)", DIM))

    def _excerpt(self, evidence: Evidence, head: str) -> None:
        """Frames are cut in the middle to stay one row each; what a log says is broken, so that it can be read."""
        room = self.canvas.width - cells(head)
        lines = [tidy(line.rstrip()) for line in evidence.excerpt.split("\n") if line.strip()]
        if evidence.source in _TOLD:
            lines = [row for line in lines for row in wrap(line, room, room)]
        for line in lines[:MAX_EXCERPT_ROWS]:
            self.canvas.row((head, DIM), (self.canvas.fit(line, room), DIM))
        if len(lines) > MAX_EXCERPT_ROWS:
            blank = " " * (cells(head) - cells(self.canvas.lines.quote))
            self.canvas.row((f"{blank}{self.canvas.lines.ellipsis} {len(lines) - MAX_EXCERPT_ROWS} more lines", DIM))

    def _claim(self, claim: str) -> str:
        """A sentence in which a long path does not tear the lines apart; the path of a culprit stands above in full."""
        limit = self.canvas.width // 2
        words = tidy(claim).split(" ")
        return " ".join(w if cells(w) <= limit else self._short(w, limit) for w in words)

    def _short(self, word: str, width: int) -> str:
        """A path without its beginning, the brackets or quotes around it kept."""
        inside = word.lstrip("([{'\"`")
        before = word[: len(word) - len(inside)]
        return before + short_path(inside, width - cells(before), ellipsis=self.canvas.lines.ellipsis)

    def steps(self, finding: ReportedFinding) -> None:
        self.canvas.row(("next steps", DIM))
        for number, step in enumerate((*finding.next_steps, f"read more: gpudiag runbook {finding.code}"), 1):
            self.canvas.paragraph([(f"  {number}  ", DIM)], step)


def _sources(sources: Sequence[str]) -> str:
    """'stacks, fds of pid 1' for 'stacks of pid 1' and 'fds of pid 1'."""
    names: dict[str, list[str]] = {}
    for source in sources:
        name, of, whose = source.partition(" of ")
        names.setdefault(of + whose, []).append(name)
    return ", ".join(f"{', '.join(found)}{whose}" for whose, found in names.items())


def _alike(proof: Sequence[Evidence]) -> list[tuple[Evidence, int]]:
    """Evidence with the number of further pieces that say the same of other ranks or threads."""
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for evidence in proof:
        groups.setdefault((evidence.source, _NUMBER.sub("#", evidence.claim)), []).append(evidence)
    return [
        pair
        for group in groups.values()
        for pair in ([(e, 0) for e in group] if len(group) <= 3 else [(group[0], len(group) - 1)])
    ]
