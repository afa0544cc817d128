"""What a screen is given, and what it gives back: pure data, so that every screen can be tested as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gpudiag.model.report import Report, Worker
from gpudiag.model.snapshot import Snapshot
from gpudiag.render.canvas import Canvas, Segment
from gpudiag.render.names import Names
from gpudiag.render.table import worker_order
from gpudiag.tui.frame import Details, Frame, unpack
from gpudiag.tui.ring import Moment


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Rows that are shown. A text that is no regular expression is searched for as it stands."""

    text: str = ""

    def keeps(self, row: str) -> bool:
        if not self.text:
            return True
        negated = self.text.startswith("!")
        found = self._pattern.search(row) is not None
        return found is not negated

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        wanted = self.text.removeprefix("!")
        try:
            return re.compile(wanted, re.IGNORECASE)
        except re.error:
            return re.compile(re.escape(wanted), re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class View:
    """One frame and how a person wants to see it. `moments` end with this frame; `height` is the rows of the body."""

    frame: Frame
    width: int
    height: int
    plain: bool = False
    moments: Sequence[Moment] = ()
    server: int = 0
    pid: int | None = None
    """The process chosen by hand."""
    filter: Filter = field(default_factory=Filter)
    sort: str | None = None
    reverse: bool = False
    grouped: bool | None = None
    finding: int = 0
    opened: frozenset[str] = frozenset()
    """Keys of the rows whose details are open, and 'environment'."""

    @property
    def report(self) -> Report | None:
        reports = self.frame.reports
        return reports[min(self.server, len(reports) - 1)] if reports else None

    @cached_property
    def details(self) -> Details:
        return unpack(self.frame.packed)

    @property
    def looked(self) -> Snapshot | None:
        """The look whose stacks are shown: with C frames if somebody asked for them."""
        observation = self.details.observation
        return self.details.native or (observation.last if observation is not None else None)

    def canvas(self) -> Canvas:
        return Canvas(self.width, color=True, plain=self.plain)

    def names(self, canvas: Canvas) -> Names | None:
        return Names(self.report, ellipsis=canvas.lines.ellipsis) if self.report else None

    @property
    def workers(self) -> list[Worker]:
        """Of the server shown, in rank order."""
        target = self.report.target if self.report else None
        return sorted(target.workers, key=worker_order) if target else []

    @property
    def blamed(self) -> frozenset[int | None]:
        """Pids of the culprits. What explains a state that is no fault blames nobody."""
        verdict = self.report.verdict if self.report else None
        return frozenset(c.pid for c in verdict.culprits) if verdict and verdict.severity != "info" else frozenset()

    @property
    def chosen(self) -> Worker | None:
        """The process that is looked at: the one chosen, else the culprit's, else the first."""
        workers = self.workers
        pids = [self.pid] if self.pid is not None else []
        if self.report is not None:
            pids += [c.pid for c in self.report.verdict.culprits if c.pid is not None]
        return next((w for pid in pids for w in workers if w.pid == pid), workers[0] if workers else None)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """`rows` below each other; the first `fixed` stay while the rest is scrolled. `keys` names rows that can be chosen.

    `start` is the key of the row to choose as long as the person has chosen none.
    """

    rows: list[list[Segment]]
    keys: dict[int, str] = field(default_factory=dict)
    fixed: int = 0
    start: str | None = None

    def text(self) -> str:
        """The rows as plain text, for tests and for the clipboard."""
        return "".join("".join(t for t, _ in row).rstrip() + "\n" for row in self.rows)


def nothing(view: View, *lines: str) -> Drawn:
    """A screen that has nothing to show says why, and what would change that."""
    canvas = view.canvas()
    for line in lines:
        canvas.paragraph([("  ", "")], line)
    return Drawn(rows=canvas.rows)
