"""A server that comes up: its phases with bars and the time that is left, then throughput and acceptance."""

from __future__ import annotations

from typing import Final, get_args

from gpudiag.launch.status import part, size
from gpudiag.model.run import Phase, PhaseProgress, RunProgress, Serving
from gpudiag.render.canvas import Canvas, cells, pad
from gpudiag.render.plain import clean
from gpudiag.render.style import BOLD, DIM, GREEN, ORANGE, PLAIN, SKY, VERMILION, Look
from gpudiag.tui.curves import bar
from gpudiag.tui.frame import Run
from gpudiag.tui.view import Drawn, View, nothing

STATES: Final[dict[str, Look]] = {
    "starting": Look(glyph="↓", ascii="v", word="starting", color=f"bold {ORANGE}"),
    "serving": Look(glyph="●", ascii=">", word="serving", color=f"bold {GREEN}"),
    "stalled": Look(glyph="■", ascii="!", word="STALLED", color=f"bold {VERMILION}"),
    "stopping": Look(glyph="○", ascii="-", word="stopping", color=f"bold {SKY}"),
    "stopped": Look(glyph="○", ascii="-", word="stopped", color=f"bold {SKY}"),
    "crashed": Look(glyph="✗", ascii="x", word="CRASHED", color=f"bold {VERMILION}"),
    "killed": Look(glyph="✗", ascii="x", word="KILLED", color=f"bold {VERMILION}"),
}
_WIDE: Final = 120
_BAR: Final = 20
_SHORT_BAR: Final = 10
_NAME: Final = 18
_TAIL: Final = 6


def draw(view: View) -> Drawn:
    """State and sentence, one row for each phase, what it serves, the last lines that it printed."""
    run = view.frame.run
    if run is None:
        why = "this server was not started by gpudiag, so nothing is known of its start"
        return nothing(view, why, "start one: `gpudiag launch`")
    canvas = view.canvas()
    progress = run.progress
    if progress is None:
        canvas.row(("  the start has been planned; the server has said nothing yet", PLAIN))
    else:
        look = STATES[progress.state]
        canvas.paragraph([(f"{look.mark(plain=view.plain)} {look.word}  ", look.color)], clean(progress.sentence), BOLD)
        if progress.report is not None:
            canvas.row(("  report  ", DIM), (clean(progress.report), PLAIN))
    canvas.rule()
    _phases(progress, canvas, view)
    if progress is not None and progress.serving is not None:
        canvas.rule()
        _serving(progress.serving, canvas)
    _plan(run, canvas)
    if run.tail:
        canvas.rule()
        for line in run.tail[-_TAIL:]:
            canvas.row(("  ", PLAIN), (canvas.fit(line, canvas.width - 2), DIM))
    return Drawn(rows=canvas.rows)


def _phases(progress: RunProgress | None, canvas: Canvas, view: View) -> None:
    known = {p.phase: p for p in progress.phases} if progress else {}
    now = progress.at if progress else 0.0
    over = progress is not None and progress.state not in ("starting", "stalled")
    bar_width = _BAR if canvas.width >= _WIDE else _SHORT_BAR
    last = f"{'last run':>8}  " if canvas.width >= _WIDE else ""
    canvas.row((f"    {'phase':<{_NAME}}{'':{bar_width}}  {'took':>7}  {'left':>7}  {last}done", DIM))
    phases: tuple[Phase, ...] = get_args(Phase)
    for phase in phases:
        found = known.get(phase)
        if found is None:
            canvas.row((f"    {phase}", DIM))
        else:
            _phase(found, now, canvas, plain=view.plain, over=over)


def _phase(phase: PhaseProgress, now: float, canvas: Canvas, *, plain: bool, over: bool) -> None:
    ended = phase.ended_at is not None
    took_s = (phase.ended_at or now) - phase.began_at
    glyph, style = ("+" if plain else "✓", PLAIN) if ended else (">" if plain else "▸", BOLD)
    if not ended and over:
        glyph, style = ("x" if plain else "✗", f"bold {VERMILION}")
    share = 1.0 if ended else _share(phase, took_s)
    width = _BAR if canvas.width >= _WIDE else _SHORT_BAR
    drawn = bar(share, width, plain=plain) if share is not None else pad("", width)
    left = "" if ended or phase.eta_s is None else duration(phase.eta_s)
    head = f"  {glyph} {phase.phase:<{_NAME}}"
    row = f"  {duration(took_s):>7}  {left:>7}  "
    if canvas.width >= _WIDE:
        row += f"{'' if phase.last_run_s is None else duration(phase.last_run_s):>8}  "
    room, parts = max(0, canvas.width - len(head) - width - len(row)), _amount(phase)
    while len(parts) > 1 and cells(", ".join(parts)) > room:
        parts.pop()
    amount = canvas.fit(", ".join(parts), room)
    canvas.row((head, style), (drawn, GREEN if ended else SKY), (row, PLAIN), (amount, PLAIN))


def _share(phase: PhaseProgress, took_s: float) -> float | None:
    """How much is done: as it was counted, else by the time the last run took; None where nothing says so."""
    if phase.done is not None and phase.total:
        return phase.done / phase.total
    if phase.last_run_s:
        return min(0.99, took_s / phase.last_run_s)
    return None


def _amount(phase: PhaseProgress) -> list[str]:
    """How much of it is done, how fast, and with what: the later, the sooner it can be left out."""
    parts = []
    if phase.done is not None:
        parts.append(_of(phase.done, phase.total, phase.unit))
    if phase.rate_per_s is not None:
        parts.append(f"{_of(phase.rate_per_s, None, phase.unit)}/s")
    if phase.detail:
        parts.append(clean(phase.detail))
    return parts


def _of(value: float, total: float | None, unit: str | None) -> str:
    """'312 of 547 GB', '12 of 36 graphs'."""
    if unit == "B":
        return part(value, total) if total else size(value)
    shown = f"{value:.0f} of {total:.0f}" if total else f"{value:.0f}"
    return f"{shown} {unit or ''}".rstrip()


def duration(seconds: float) -> str:
    """'0.4 s', '12 s', '3:05 min', '1:02 h': at most seven characters of number and unit."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60}:{int(seconds) % 60:02} m"
    return f"{int(seconds) // 3600}:{int(seconds) % 3600 // 60:02} h"


def _serving(serving: Serving, canvas: Canvas) -> None:
    told = (
        ("throughput", serving.tokens_per_s, "tokens/s", 0),
        ("running", serving.running, "requests", 0),
        ("waiting", serving.waiting, "requests", 0),
        ("acceptance", serving.acceptance_length, "tokens a round, the bonus token included", 2),
        ("accepted", None if serving.acceptance_rate is None else serving.acceptance_rate * 100, "% of drafted tokens", 0),
    )
    for name, value, unit, digits in told:
        if value is None:
            canvas.row((f"  {name:<12}", DIM), ("not told".rjust(9), DIM))
        else:
            canvas.row((f"  {name:<12}", DIM), (f"{value:.{digits}f}".rjust(9), BOLD), (f"  {unit}", PLAIN))


def _plan(run: Run, canvas: Canvas) -> None:
    plan = run.manifest.plan
    canvas.rule()
    about = [plan.engine + (f" {plan.version}" if plan.version else ""), f"tp {plan.tensor_parallel}"]
    about += [f"pp {plan.pipeline_parallel}"] if plan.pipeline_parallel > 1 else []
    about += [f"http://{plan.host}:{plan.port}"]
    canvas.row(("  serves  ", DIM), (canvas.fit(clean("  ".join(about)), canvas.width - 10), PLAIN))
    canvas.row(("  model   ", DIM), (canvas.fit(clean(plan.model), canvas.width - 10), PLAIN))
    canvas.row(("  drafter ", DIM), (canvas.fit(clean(plan.drafter or "none"), canvas.width - 10), PLAIN))
    for note in plan.notes[:3]:
        canvas.paragraph([("  note    ", DIM)], clean(note))
