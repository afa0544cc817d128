"""GPUs: power and activity now and over time, clocks, links, errors. Power is the witness: utilisation counts spinning too."""

from __future__ import annotations

from typing import Final

from gpudiag.model.gpu import Gpu
from gpudiag.model.reading import Ok, value_or
from gpudiag.render.canvas import Canvas
from gpudiag.render.plain import clean
from gpudiag.render.style import BOLD, DIM, ORANGE, PINK, PLAIN, SKY, VERMILION
from gpudiag.tui.curves import curve
from gpudiag.tui.grid import Cell, Column, Grid
from gpudiag.tui.measures import sm_percent
from gpudiag.tui.screens.rank import why_not
from gpudiag.tui.view import Drawn, View, nothing

_CURVE: Final = 10
_ROOMY: Final = 78
_ERROR: Final = f"bold {VERMILION}"
_FINE: Final = ("none", "gpu-idle", "")


def draw(view: View) -> Drawn:
    """One row for each GPU, then the curves, then what is wrong with any of them."""
    observation = view.details.observation
    canvas = view.canvas()
    if observation is None:
        return nothing(view, "no GPUs: no server was looked at")
    reading = observation.last.gpus
    if not isinstance(reading, Ok):
        why_not(canvas, "GPUs", reading)
        if not canvas.rows:
            canvas.row(("  no GPU was looked at", DIM))
        return Drawn(rows=canvas.rows)
    gpus = [g for g in reading.value.gpus if view.filter.keeps(f"{g.index} {g.name} {g.uuid}")]
    canvas.row((f"  driver {clean(reading.value.driver)}", DIM))
    _table(_sorted(gpus, view), view, canvas)
    for index, error in reading.value.lost.items():
        canvas.row((f"  gpu {index} does not answer: {clean(error)}", _ERROR))
    _curves(gpus, view, canvas)
    _trouble(gpus, canvas)
    xids = value_or(observation.last.xids, ())
    for event in xids[-8:]:
        canvas.paragraph([(f"  Xid {event.number}  ", _ERROR)], clean(f"{event.pci}: {event.text}"))
    return Drawn(rows=canvas.rows)


def _sorted(gpus: list[Gpu], view: View) -> list[Gpu]:
    if view.sort in (None, "gpu"):
        return gpus[::-1] if view.reverse else gpus

    def key(gpu: Gpu) -> float:
        value = {"W": gpu.power_w, "sm%": sm_percent(gpu), "temp": gpu.temperature_c}.get(view.sort or "")
        return -1.0 if value is None else value

    return sorted(gpus, key=key, reverse=not view.reverse)


def _table(gpus: list[Gpu], view: View, canvas: Canvas) -> None:
    grid = Grid(
        [
            Column(title="gpu", width=4, align="right"),
            Column(title="name", width=14, wide=100, grow=1),
            Column(title="W", width=5, align="right"),
            Column(title="limit", width=5, align="right", wide=_ROOMY),
            Column(title="sm%", width=4, align="right"),
            Column(title="util%", width=5, align="right", wide=_ROOMY),
            Column(title="MHz", width=5, align="right"),
            Column(title="max", width=5, align="right", wide=90),
            Column(title="temp", width=5, align="right"),
            Column(title="GB", width=6, align="right"),
            Column(title="of", width=5, align="right", wide=_ROOMY),
            Column(title="nvlink", width=6, align="right"),
            Column(title="pcie", width=9, wide=110),
            Column(title="errors", width=6, align="right"),
        ],
        canvas,
    )
    grid.head(view.sort, reverse=view.reverse)
    for gpu in gpus:
        errors = _errors(gpu)
        grid.row(
            [
                Cell(text=str(gpu.index), style=BOLD),
                Cell(text=clean(gpu.name)),
                Cell(text=_number(gpu.power_w), style=BOLD),
                Cell(text=_number(gpu.power_limit_w), style=DIM),
                Cell(text=_number(gpu.gpm.sm if gpu.gpm else None)),
                Cell(text=_number(gpu.utilisation_percent)),
                Cell(text=_number(gpu.sm_clock_mhz)),
                Cell(text=_number(gpu.sm_clock_max_mhz), style=DIM),
                Cell(text=f"{gpu.temperature_c} C" if gpu.temperature_c is not None else ""),
                Cell(text=f"{gpu.memory_used_bytes / 1e9:.1f}" if gpu.memory_used_bytes is not None else ""),
                Cell(text=f"{gpu.memory_total_bytes / 1e9:.0f}" if gpu.memory_total_bytes is not None else "", style=DIM),
                Cell(text=_links(gpu)),
                Cell(text=_pcie(gpu)),
                Cell(text=str(errors) if errors else "0", style=_ERROR if errors else DIM),
            ]
        )


def _curves(gpus: list[Gpu], view: View, canvas: Canvas) -> None:
    """Power and activity of the looks up to this one, the newest on the right."""
    width = min(max(_CURVE, (canvas.width - 28) // 2), 80)
    times = view.moments[-width:]
    if len(times) < 2:
        return
    span_s = times[-1].at - times[0].at
    canvas.blank()
    canvas.row((f"  over the last {span_s:.0f} s", DIM))
    for gpu in gpus:
        points = [next((p for p in m.gpus if p.index == gpu.index), None) for m in times]
        power = [p.power_w if p else None for p in points]
        activity = [p.sm_percent if p else None for p in points]
        top = gpu.power_limit_w or max((w for w in power if w is not None), default=1.0)
        canvas.row(
            (f"  {gpu.index:>4}  W ", PLAIN),
            (curve(power, width, top=top, plain=view.plain), SKY),
            (f" {top:.0f}   sm% ", DIM),
            (curve(activity, width, top=100.0, plain=view.plain), ORANGE),
            (" 100", DIM),
        )


def _trouble(gpus: list[Gpu], canvas: Canvas) -> None:
    told = []
    for gpu in gpus:
        parts = [r for r in gpu.event_reasons or () if r not in _FINE]
        if gpu.recovery_action not in (None, "none"):
            parts.append(f"the driver asks for {gpu.recovery_action}")
        if gpu.nvlink is not None and gpu.nvlink.links_down:
            parts.append(f"NVLink {', '.join(map(str, gpu.nvlink.links_down))} down")
        if parts:
            told.append((gpu.index, clean(", ".join(parts))))
    if told:
        canvas.blank()
    for index, text in told:
        canvas.paragraph([(f"  gpu {index}  ", PINK)], text)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _links(gpu: Gpu) -> str:
    if gpu.nvlink is None:
        return ""
    total = gpu.nvlink.links_up + len(gpu.nvlink.links_down)
    return f"{gpu.nvlink.links_up}/{total}"


def _pcie(gpu: Gpu) -> str:
    if gpu.pcie is None or gpu.pcie.generation is None:
        return ""
    return f"gen{gpu.pcie.generation} x{gpu.pcie.width}"


def _errors(gpu: Gpu) -> int:
    """Uncorrected memory errors and NVLink errors since the driver was loaded."""
    memory = (gpu.memory.ecc_uncorrected_volatile or 0) if gpu.memory else 0
    return memory + sum(gpu.nvlink.errors.values() if gpu.nvlink else ())
