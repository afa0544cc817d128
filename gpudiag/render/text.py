"""A report as text for a terminal: the verdict first, then who waits for whom, then the proof."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudiag.model import node
from gpudiag.model.finding import Culprit, Evidence
from gpudiag.model.report import Report, ReportedFinding, Target
from gpudiag.render.canvas import Canvas, Segment, cells, pad, wrap
from gpudiag.render.columns import draw_table
from gpudiag.render.drawing import draw_forest
from gpudiag.render.names import Names, rank_name
from gpudiag.render.plain import short_file, short_path, tidy
from gpudiag.render.safe import safe
from gpudiag.render.style import BOLD, CONFIDENCES, DIM, PLAIN, SERVER_STATES, SEVERITIES, STATUSES, Look
from gpudiag.render.table import rows
from gpudiag.render.tree import forest, plain_node

_NUMBER = re.compile(r"\d+")
_TOLD = frozenset({"traceback", "log-line", "exit-status", "kernel-log", "collective-watchdog"})
"""Sources whose excerpts are sentences."""

MIN_HOST = 6
MAX_EVIDENCE = 12
MAX_EXCERPT_ROWS = 6
MAX_CONSEQUENCES = 6
MIN_SILENCE_S = 5
MAX_CULPRITS = 4
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
        self.live = bool(report.waits or (report.target and report.target.workers))
        """Whether processes were looked at. What only logs say knows no waits, and not what became of a process."""

    def draw(self) -> None:
        self._header()
        self.canvas.rule()
        self._verdict()
        self._drawing()
        self._table()
        self._findings()
        self.canvas.rule()
        self._not_read()
        self._cost()

    def _header(self) -> None:
        report, target = self.report, self.report.target
        parts = [f"gpudiag {report.gpudiag}"]
        state = SERVER_STATES["unknown"]
        if target is not None:
            state = SERVER_STATES[target.state]
            parts += [" ".join(filter(None, (target.engine, target.version))), *_sizes(target)]
            # A log need not say which process was the root.
            parts += [f"pid {target.root_pid}"] if target.root_pid else []
        right = f"{state.mark(plain=self.canvas.plain)} {state.word}{_silence(target)}"
        room = self.canvas.width - cells("  ".join(parts)) - cells(right) - 4
        if room >= MIN_HOST:
            parts.append(self.canvas.fit(report.host, room))
        left: list[Segment] = [(parts[0], DIM), ("  " + "  ".join(parts[1:]), PLAIN)]
        self.canvas.ends(left, (right, state.color))

    def _verdict(self) -> None:
        verdict = self.report.verdict
        if verdict.status == "finding" and verdict.severity is not None:
            look = SEVERITIES[verdict.severity]
            head: list[Segment] = [(f"{self._mark(look)} {verdict.code}  ", look.color)]
            confidence = verdict.confidence or ""
            right: Segment | None = (confidence, CONFIDENCES.get(confidence, BOLD))
        else:
            look = STATUSES[verdict.status]
            head, right = [(f"{self._mark(look)} ", look.color)], None
        self.canvas.paragraph(head, verdict.title, BOLD, right=right)
        groups = _by_place(verdict.culprits)
        for group in groups[:MAX_CULPRITS]:
            self._culprits(group)
        if len(groups) > MAX_CULPRITS:
            self._field("", f"and {len(groups) - MAX_CULPRITS} more (--json has all)", DIM)
        for path in dict.fromkeys(c.path for c in verdict.culprits if c.path):
            self._field("path", self.canvas.fit(path, self._field_room()))
        if verdict.next_step:
            self.canvas.paragraph([("  next    ", DIM)], verdict.next_step)

    def _culprits(self, group: Sequence[Culprit]) -> None:
        """Two lines for culprits that stand at the same place: who, and where."""
        first = group[0]
        if first.node != f"file:{first.path}" and (self.live or first.node != node.OUTSIDE):
            self._field("who", self.canvas.fit(self._who(group), self._field_room()))
        if first.function or first.file:
            self._at(first)
        if first.kernel:
            self._field("kernel", self.canvas.fit(first.kernel, self._field_room()))

    def _at(self, culprit: Culprit) -> None:
        """Function and place, in one row if they fit. The place is what a person types: it is cut last."""
        place = f"{culprit.file}:{culprit.line}" if culprit.line is not None else culprit.file or ""
        function, room = culprit.function or "", self._field_room()
        if cells(function) + 2 + cells(place) > room:
            place = short_file(place)
        if cells(function) + 2 + cells(place) <= room:
            self._field("at", f"{function}  {place}".strip())
            return
        self._field("at", self.canvas.fit(place, room))
        if function:
            self._field("in", self.canvas.fit(function, room))

    def _who(self, group: Sequence[Culprit]) -> str:
        first = group[0]
        if len(group) > 1:
            pids = sorted({c.pid for c in group if c.pid is not None})
            return f"{self.names.many([plain_node(c.node) for c in group])}, pids {', '.join(map(str, pids))}"
        name = f"rank {first.rank}" if first.rank is not None else self.names.one(plain_node(first.node))
        parts = [name]
        if first.pid is not None and f"pid {first.pid}" not in name:
            parts.append(f"pid {first.pid}")
        if self.live and first.pid is None and node.path_of(first.node) is None:
            parts.append("no process")
        if first.tid is not None and "thread" not in name:
            parts.append("main thread" if first.tid == first.pid else f"thread {first.tid}")
        parts += [f"gpu {first.gpu}"] if first.gpu else []
        parts += [f"on {first.host}"] if first.host else []
        return ", ".join(parts)

    def _field(self, label: str, value: str, style: str = PLAIN) -> None:
        self.canvas.row((f"  {label:<8}", DIM), (value, style))

    def _field_room(self) -> int:
        return self.canvas.width - 10

    def _mark(self, look: Look) -> str:
        return look.mark(plain=self.canvas.plain)

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
            self._consequences(finding)
            self._evidence(finding)
            self._steps(finding)
        for finding in self.report.findings:
            if finding not in main:
                self._other(finding)

    def _consequences(self, finding: ReportedFinding) -> None:
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

    def _evidence(self, finding: ReportedFinding, limit: int = MAX_EVIDENCE) -> None:
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

    def _steps(self, finding: ReportedFinding) -> None:
        self.canvas.row(("next steps", DIM))
        for number, step in enumerate((*finding.next_steps, f"read more: gpudiag runbook {finding.code}"), 1):
            self.canvas.paragraph([(f"  {number}  ", DIM)], step)

    def _other(self, finding: ReportedFinding) -> None:
        self.canvas.rule()
        look = SEVERITIES[finding.severity]
        head: list[Segment] = [(f"{self._mark(look)} {finding.code}  ", look.color)]
        self.canvas.paragraph(head, finding.title, right=(finding.confidence, CONFIDENCES[finding.confidence]))
        self._evidence(finding, limit=3)
        for step in finding.next_steps[:1]:
            self.canvas.paragraph([("  next    ", DIM)], step)

    def _not_read(self) -> None:
        asked: dict[str, dict[str, list[str]]] = {}
        for one in self.report.not_read:
            asked.setdefault(one.help, {}).setdefault(one.reason, []).append(one.source)
        for help, reasons in asked.items():
            for reason, sources in reasons.items():
                self.canvas.paragraph([("not read  ", DIM)], f"{_sources(sources)}: {reason}")
            if help:
                self.canvas.paragraph([(f"          {self.canvas.lines.arrow} ", DIM)], help)

    def _cost(self) -> None:
        cost = self.report.cost
        stopped = f"stopped {cost.stopped_s * 1000:.0f} ms, " if self.live else ""
        told = f"{stopped}took {cost.wall_s:.1f} s"
        self.canvas.ends([(told, DIM)], (self.report.generated_at, DIM))


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


def _by_place(culprits: Sequence[Culprit]) -> list[list[Culprit]]:
    """Culprits of different processes that stand at the same source line together; all others alone."""
    groups: list[list[Culprit]] = []
    for culprit in culprits:
        place = _place_of(culprit)
        group = next((g for g in groups if place and _place_of(g[0]) == place and culprit.pid not in {c.pid for c in g}), None)
        if group is None:
            groups.append([culprit])
        else:
            group.append(culprit)
    return groups


def _place_of(culprit: Culprit) -> tuple[object, ...] | None:
    return (culprit.function, culprit.file, culprit.line, culprit.kernel, culprit.host) if culprit.file else None


def _silence(target: Target | None) -> str:
    """How long the log has been silent, once that is longer than a busy or idle server's usual pause."""
    silent_s = target.log_silent_s if target is not None else None
    if silent_s is None or silent_s < MIN_SILENCE_S:
        return ""
    return f", no log for {silent_s:.0f} s" if silent_s < 600 else f", no log for {silent_s / 60:.0f} min"


def _sizes(target: Target) -> list[str]:
    """'tp 8', 'pp 2': the highest coordinate of each dimension that a worker has, plus one."""
    ranks = [w.rank for w in target.workers]
    sizes = [
        (name, 1 + max((c for r in ranks if (c := getattr(r, name)) is not None), default=0)) for name in ("dp", "pp", "tp", "ep")
    ]
    told = [f"{name} {size}" for name, size in sizes if size > 1]
    if told:
        return told
    number = len({rank_name(r) for r in ranks if rank_name(r)})
    return [f"{number} rank{'s' if number > 1 else ''}"] if number else []
