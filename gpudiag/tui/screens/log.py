"""What the server wrote: the last lines of all its logs in order of time, the root cause marked."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from gpudiag.model.log import LogFacts, Place, Speaker
from gpudiag.model.report import Report
from gpudiag.render.canvas import Canvas, cells, pad, wrap
from gpudiag.render.names import rank_name
from gpudiag.render.plain import clean
from gpudiag.render.style import DIM, ORANGE, PINK, PLAIN, SEVERITIES, VERMILION
from gpudiag.tui.view import Drawn, View, nothing

MAX_LINES: Final = 400
_LEVELS: Final = {"ERROR": VERMILION, "CRITICAL": VERMILION, "FATAL": VERMILION, "WARNING": ORANGE, "WARN": ORANGE}
_TELLING: Final = frozenset({"log-line", "traceback", "exit-status", "kernel-log", "collective-watchdog"})
"""Evidence whose excerpt stands in a log."""


class Line(Struct, frozen=True, kw_only=True):
    """One row: when it was written (seconds of the year, if it says so), who by, and whether it is what the verdict rests on."""

    source: int
    number: int
    clock_s: float | None
    speaker: str
    level: str
    text: str
    cause: bool = False


def draw(view: View) -> Drawn:
    """Lines of the server's log, the newest last. Those of a run directory where processes were not looked at."""
    canvas = view.canvas()
    logs = view.details.logs
    facts = next((log.facts for log in logs if log.facts is not None), None)
    lines = merged(facts, view.report) if facts is not None else []
    if not lines:
        return _told_otherwise(view, canvas)
    shown = [line for line in lines if view.filter.keeps(f"{line.speaker} {line.level} {line.text}")]
    if facts is not None:
        names = ", ".join(clean(s.name) for s in facts.sources[:3])
        more = f" and {len(facts.sources) - 3} more" if len(facts.sources) > 3 else ""
        canvas.row((canvas.fit(f"  {names}{more}, {sum(s.lines for s in facts.sources)} lines", canvas.width), DIM))
    for line in shown[-MAX_LINES:]:
        _draw_line(line, canvas)
    if not shown:
        canvas.row(("  no line matches the filter (esc clears it)", DIM))
    return Drawn(rows=canvas.rows, fixed=1)


def _draw_line(line: Line, canvas: Canvas) -> None:
    """One row; what the verdict rests on is not cut but broken."""
    look = SEVERITIES["error"]
    mark = look.mark(plain=canvas.plain) if line.cause else " "
    head = (
        " ".join(part for part in (f" {mark}", _clock(line.clock_s), pad(line.speaker, 10) if line.speaker else "") if part) + " "
    )
    style = f"bold {VERMILION}" if line.cause else _LEVELS.get(line.level, PLAIN)
    text = f"{line.level} {line.text}" if line.level in _LEVELS else line.text
    room = max(10, canvas.width - cells(head))
    for number, row in enumerate(wrap(text, room, room) if line.cause else [text]):
        left = head if number == 0 else " " * cells(head)
        canvas.row((left, look.color if line.cause else DIM), (canvas.fit(row, room), style))


def merged(facts: LogFacts, report: Report | None) -> list[Line]:
    """The last lines, with the tracebacks and events that stand further up, in the order of their clocks."""
    marks = _marks(report)
    lines: dict[tuple[int, int], Line] = {}

    def add(place: Place, speaker: Speaker, level: str, text: str) -> None:
        shown = clean(text)
        cause = any(mark in shown for mark in marks)
        line = Line(
            source=place.source,
            number=place.number,
            clock_s=place.clock_s,
            speaker=_name(speaker),
            level=level,
            text=shown,
            cause=cause,
        )
        lines.setdefault((place.source, place.number), line)

    for told in facts.tail:
        add(told.place, told.speaker, told.level or "", told.text)
    for event in facts.events:
        add(event.place, event.speaker, "", event.text)
    for trace in facts.tracebacks:
        for link in list(trace.chain())[:8]:
            add(link.end, link.speaker, "ERROR", link.headline)
    return _in_order(list(lines.values()))


def _in_order(lines: list[Line]) -> list[Line]:
    """By clock; a line without one stays behind the line before it in its own file."""
    lines.sort(key=lambda line: (line.source, line.number))
    keyed, clock, source = [], 0.0, -1
    for line in lines:
        if line.source != source:
            clock, source = 0.0, line.source
        clock = max(clock, line.clock_s or 0.0)
        keyed.append((clock, line.source, line.number, line))
    return [line for *_, line in sorted(keyed, key=lambda item: item[:3])]


def _marks(report: Report | None) -> list[str]:
    """What the finding of the verdict quotes from a log: lines of some length, so that nothing common is marked."""
    if report is None or report.verdict.code is None:
        return []
    proof = [e for f in report.findings if f.code == report.verdict.code for e in f.evidence if e.source in _TELLING]
    quoted = [line.strip() for e in proof for line in e.excerpt.splitlines()]
    return [line for line in quoted if len(line) >= 12 and not re.fullmatch(r"File .*|[~^ ]+", line)]


def _name(speaker: Speaker) -> str:
    if speaker.tag:
        return clean(speaker.tag)[:10]
    rank = rank_name(speaker.rank)
    return f"rank {rank}" if rank else ""


def _clock(clock_s: float | None) -> str:
    if clock_s is None:
        return ""
    seconds = int(clock_s) % 86400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _told_otherwise(view: View, canvas: Canvas) -> Drawn:
    """The tail of a run's log; else why there is none."""
    run = view.frame.run
    if run is not None and run.tail:
        for line in (text for text in run.tail if view.filter.keeps(text)):
            level = next((color for word, color in _LEVELS.items() if word in line[:60]), PLAIN)
            canvas.row(("  ", PLAIN), (canvas.fit(line, canvas.width - 2), level))
        return Drawn(rows=canvas.rows)
    for log in view.details.logs:
        if log.reason:
            canvas.paragraph([("  ", PLAIN)], f"the log cannot be read: {clean(log.reason)}", PINK)
            if log.help:
                canvas.paragraph([(f"  {canvas.lines.arrow} ", DIM)], clean(log.help))
    sources = [source for log in view.details.logs if log.facts is not None for source in log.facts.sources]
    for source in sources:
        canvas.paragraph([("  ", PLAIN)], f"{clean(source.name)}: nothing has been written to it yet")
    if canvas.rows:
        return Drawn(rows=canvas.rows)
    return nothing(view, "nothing was read of a log: its lines come a few seconds after the first look")
