"""NCCL communicators: how many collectives each rank launched, who is behind, and what others say of them."""

from __future__ import annotations

from gpudiag.model.communicator import COLLECTIVES
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Observation
from gpudiag.render.canvas import Canvas, cells
from gpudiag.render.names import Names, ranges
from gpudiag.render.plain import clean
from gpudiag.render.style import BOLD, DIM, PINK, PLAIN, VERMILION
from gpudiag.tui.grid import Cell, Column, Grid
from gpudiag.tui.measures import behind
from gpudiag.tui.screens.rank import why_not
from gpudiag.tui.view import Drawn, View, nothing
from gpudiag.waits.communicators import End, Group, groups

_BEHIND = f"bold {VERMILION}"


def draw(view: View) -> Drawn:
    """One table for each communicator of more than one rank; those in which somebody lags come first."""
    observation, report = view.details.observation, view.report
    canvas = view.canvas()
    if observation is None or report is None:
        return nothing(view, "no communicators: no process was looked at")
    names = Names(report, ellipsis=canvas.lines.ellipsis)
    keys: dict[int, str] = {}
    found = sorted(groups(observation), key=lambda g: (g.equal or not g.unmoved, -g.size))
    for group in found:
        if canvas.rows:
            canvas.blank()
        _title(group, canvas)
        _table(group, view, names, canvas, keys)
    if not found:
        canvas.row(("  no NCCL communicator of more than one rank was found", PLAIN))
        for pid, reason in _unread(view, observation).items():
            canvas.paragraph([("  ", PLAIN)], f"pid {pid}: {reason}", PINK)
    _flight(observation, canvas)
    _ras(observation, canvas)
    return Drawn(rows=canvas.rows, keys=keys)


def _title(group: Group, canvas: Canvas) -> None:
    state = "unmoved between the looks" if group.unmoved else "moving" if any(e.before for e in group.ends) else "seen once"
    read = "" if group.complete else f", {len(group.ends)} readable here"
    library = next((e.nccl.version for e in group.ends if e.nccl.version), None)
    about = f"  {group.size} ranks{read}, {state}" + (f", NCCL {library}" if library else "")
    canvas.row((f"  {group.name}", BOLD), (about, PLAIN))


def _table(group: Group, view: View, names: Names, canvas: Canvas, keys: dict[int, str]) -> None:
    used = [n for n in range(len(COLLECTIVES)) if any(n < len(e.now.launched) and e.now.launched[n] for e in group.ends)]
    grid = Grid(
        [
            Column(title="rank", width=6),
            Column(title="pid", width=8, align="right"),
            *(Column(title=COLLECTIVES[n], width=13, align="right", wide=60 + 15 * i) for i, n in enumerate(used)),
            Column(title="all", width=8, align="right"),
            Column(title="behind", width=7, align="right"),
            Column(title="", width=4, grow=1),
        ],
        canvas,
    )
    grid.head()
    for end in group.ends:
        lag = behind(group, end)
        number = names.rank(f"pid:{end.pid}")
        if not view.filter.keeps(f"{number} {end.pid}"):
            continue
        keys[len(canvas.rows)] = str(end.pid)
        style = _BEHIND if lag else PLAIN
        counts = [Cell(text=f"{end.now.launched[n]}", style=_own(group, end, n)) for n in used]
        grid.row(
            [
                Cell(text=str(number if number is not None else end.rank), style=style),
                Cell(text=str(end.pid), style=DIM),
                *counts,
                Cell(text=str(end.now.total), style=style),
                Cell(text=f"-{lag}" if lag else "", style=style),
                Cell(text=_trouble(end), style=PINK),
            ]
        )


def _own(group: Group, end: End, kind: int) -> str:
    most = max(e.now.launched[kind] for e in group.ends)
    return _BEHIND if group.unmoved and end.now.launched[kind] < most else PLAIN


def _trouble(end: End) -> str:
    parts = []
    if end.now.async_error not in (0, 7):
        parts.append(f"ncclResult {end.now.async_error}")
    if end.now.aborted:
        parts.append("aborted")
    if end.now.init_state == 7:
        parts.append("still being created")
    return ", ".join(parts)


def _unread(view: View, observation: Observation) -> dict[int, str]:
    found = {}
    for worker in view.workers:
        process = observation.last.process(worker.pid)
        if process is not None and not isinstance(process.nccl, Ok):
            reason = getattr(process.nccl, "reason", None) or getattr(process.nccl, "error", "")
            if reason and reason != "not asked for":
                found[worker.pid] = clean(reason)
    return dict(list(found.items())[:8])


def _flight(observation: Observation, canvas: Canvas) -> None:
    """What torch's flight recorder says where ranks disagree."""
    reading = observation.last.flight
    if not isinstance(reading, Ok):
        return
    found = reading.value
    canvas.blank()
    canvas.row(("  flight recorder", BOLD), (f"  {len(found.ranks)} ranks, {found.records} operations compared", PLAIN))
    if not found.problems:
        canvas.row(("  the ranks agree as far as was recorded", DIM))
    for problem in found.problems:
        about = f"  {clean(problem.description or problem.group)}, operation {problem.sequence}"
        canvas.row((f"  {problem.kind}", _BEHIND), (about, PLAIN))
        for side in problem.sides:
            head = f"    {'ranks' if len(side.ranks) > 1 else 'rank'} {ranges(side.ranks)}  "
            told = " ".join(clean(t) for t in (side.operation, side.sizes, side.dtypes, side.state, side.where) if t)
            canvas.row((head, PLAIN), (canvas.fit(told, max(10, canvas.width - cells(head))), PLAIN))


def _ras(observation: Observation, canvas: Canvas) -> None:
    reading = observation.last.ras
    if not isinstance(reading, Ok):
        if getattr(reading, "reason", "") != "not asked for":
            canvas.blank()
            why_not(canvas, "NCCL's own service", reading)
        return
    for told in reading.value:
        for gone in told.missing:
            word = "dead" if gone.dead else "does not respond" if gone.unresponsive else "missing"
            canvas.row((f"  ..{told.hash[-6:]} rank {gone.rank} on {clean(gone.host)}, pid {gone.pid}: {word}", _BEHIND))
