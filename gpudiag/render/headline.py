"""The head of a report: which server, in what state, the verdict in one sentence, the culprit and the next step."""

from __future__ import annotations

from collections.abc import Sequence

from gpudiag.model import node
from gpudiag.model.finding import Culprit
from gpudiag.model.report import Report, Target
from gpudiag.render.canvas import Canvas, Segment, cells
from gpudiag.render.names import Names, rank_name
from gpudiag.render.plain import short_file
from gpudiag.render.style import BOLD, CONFIDENCES, DIM, PLAIN, SERVER_STATES, SEVERITIES, STATUSES
from gpudiag.render.tree import plain_node

MIN_HOST = 6
MIN_SILENCE_S = 5
MAX_CULPRITS = 4


def is_live(report: Report) -> bool:
    """Whether processes were looked at. What only logs say knows no waits, and not what became of a process."""
    return bool(report.waits or (report.target and report.target.workers))


def draw_title(report: Report, canvas: Canvas) -> None:
    """One line: the version, which server on which host, and its state at the right edge."""
    target = report.target
    parts = [f"gpudiag {report.gpudiag}"]
    state = SERVER_STATES["unknown"]
    if target is not None:
        state = SERVER_STATES[target.state]
        parts += [" ".join(filter(None, (target.engine, target.version))), *_sizes(target)]
        # A log need not say which process was the root.
        parts += [f"pid {target.root_pid}"] if target.root_pid else []
    right = f"{state.mark(plain=canvas.plain)} {state.word}{_silence(target)}"
    room = canvas.width - cells("  ".join(parts)) - cells(right) - 4
    if room >= MIN_HOST:
        parts.append(canvas.fit(report.host, room))
    left: list[Segment] = [(parts[0], DIM), ("  " + "  ".join(parts[1:]), PLAIN)]
    canvas.ends(left, (right, state.color))


def draw_verdict(report: Report, names: Names, canvas: Canvas) -> None:
    """The sentence, and below it who it is about, where that stands and what to do next."""
    _Verdict(report, names, canvas).draw()


class _Verdict:
    def __init__(self, report: Report, names: Names, canvas: Canvas) -> None:
        self.report = report
        self.canvas = canvas
        self.names = names
        self.live = is_live(report)

    def draw(self) -> None:
        verdict = self.report.verdict
        if verdict.status == "finding" and verdict.severity is not None:
            look = SEVERITIES[verdict.severity]
            head: list[Segment] = [(f"{look.mark(plain=self.canvas.plain)} {verdict.code}  ", look.color)]
            confidence = verdict.confidence or ""
            right: Segment | None = (confidence, CONFIDENCES.get(confidence, BOLD))
        else:
            look = STATUSES[verdict.status]
            head, right = [(f"{look.mark(plain=self.canvas.plain)} ", look.color)], None
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
