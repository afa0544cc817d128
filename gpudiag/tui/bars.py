"""The rows around a screen: which server above, how current and what costs below, and the screens by their keys."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from gpudiag import __version__
from gpudiag.model.run import ENDED
from gpudiag.render.canvas import Canvas, Segment, cells
from gpudiag.render.headline import draw_title
from gpudiag.render.plain import clean
from gpudiag.render.style import BOLD, DIM, ORANGE, PLAIN, SKY, VERMILION
from gpudiag.tui.actions import SCREENS
from gpudiag.tui.state import State

LATE_S: Final = 5.0
"""A collector from which nothing came for this long beyond its pace is called slow."""

Row = Sequence[Segment]


def title_row(state: State, width: int) -> Row:
    report = state.report
    canvas = Canvas(width, color=True, plain=state.plain)
    if report is None:
        run = state.frame.run if state.frame else None
        about = f"{run.manifest.plan.engine} {clean(run.manifest.plan.model)}" if run else ""
        canvas.row((f"gpudiag {__version__}", DIM), (canvas.fit(f"  {about}", max(0, width - 20)), PLAIN))
    else:
        draw_title(report, canvas)
    return canvas.rows[0]


def rule_row(state: State, width: int) -> Row:
    canvas = Canvas(width, color=True, plain=state.plain)
    canvas.rule()
    return canvas.rows[0]


def status_row(state: State, width: int, *, heard_at: float, now: float | None = None, said: str = "") -> Row:
    """How current the screen is. `heard_at` is when the source last said something (monotonic), `said` a passing message."""
    canvas = Canvas(width, color=True, plain=state.plain)
    keys: Segment = ("? help  q quit", DIM)
    room = width - cells(keys[0]) - 2
    left = [(canvas.fit(said, room), BOLD)] if said else _current(state, canvas, room, (now or time.monotonic()) - heard_at)
    for part in _beside(state):
        if sum(cells(text) for text, _ in left) + cells(part) + 2 <= room:
            left = [*left, ("  ", PLAIN), (part, DIM)]
    canvas.ends(left, keys)
    return canvas.rows[0]


def _current(state: State, canvas: Canvas, room: int, silent_s: float) -> list[Segment]:
    note, frame = state.note, state.frame
    if note is not None and note.trouble:
        more = f" ({note.help})" if note.help else ""
        return [(canvas.fit(f"{'!' if canvas.plain else '■'} {clean(note.text)}{clean(more)}", room), f"bold {VERMILION}")]
    if frame is None:
        return [(note.text if note else "looking ...", DIM)]
    newest = state.ring.newest
    total = newest.number if newest else 0
    if state.shown is not None:
        back_s = (newest.at if newest else frame.at) - frame.at
        ago = f"{back_s:.0f} s before the newest" if back_s >= 1 else "the newest when it was held"
        held = "||" if canvas.plain else "▮▮"
        if not state.live:
            rest = "" if frame.number == total else ", the verdict rests on all"
            return [(f"recorded, look {frame.number} of {total}{rest}", f"bold {ORANGE}" if rest else DIM)]
        return [(f"{held} paused", f"bold {ORANGE}"), (f" look {frame.number} of {total}, {ago}", PLAIN)]
    if not state.live:
        return [(f"recorded, look {frame.number} of {total}", DIM)]
    run = frame.run
    if run is not None and run.progress is not None and run.progress.state in ENDED:
        return [(f"the server has ended; what it left is in {canvas.fit(clean(run.manifest.run_id), 40)}", DIM)]
    if silent_s > LATE_S + state.interval_s + 4 * frame.took_s:
        mark = "!" if canvas.plain else "▲"
        return [(f"{mark} no look for {silent_s:.0f} s: the collector is slow", f"bold {ORANGE}")]
    return [(f"{'>' if canvas.plain else '●'} live", SKY), (f"  look {total}, {silent_s:.0f} s ago", DIM)]


def _beside(state: State) -> list[str]:
    """What else there is to say, the most important first: what does not fit is left out."""
    report = state.report
    parts = [f"filter /{state.filter.text}"] if state.filter.text else []
    if report is not None and report.not_read:
        parts.append(f"not read: {len(report.not_read)}")
    if report is not None and state.live:
        parts.append(f"stopped {report.cost.stopped_s * 1000:.0f} ms")
    return parts


def screens_row(state: State, width: int) -> Row:
    """The number keys; the screen shown is in brackets, so that it shows without colour too."""
    spelled = _screens(state, {})
    if sum(cells(t) for t, _ in spelled) > width:
        spelled = _screens(state, {"communicators": "comms"})
    if sum(cells(t) for t, _ in spelled) > width:
        spelled = _screens(state, {name: "" for name, _ in SCREENS if name != state.screen})
    return spelled


def _screens(state: State, short: dict[str, str]) -> list[Segment]:
    row: list[Segment] = []
    for number, (name, _) in enumerate(SCREENS, 1):
        word = short.get(name, name)
        here = name == state.screen
        told = f"{number} {word}".rstrip()
        row.append((f"[{told}]" if here else f" {told} ", "bold" if here else DIM))
    return row
