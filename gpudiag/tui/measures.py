"""Numbers beside the verdict: what each process does to its GPU, its processor and its communicators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudiag.model.gpu import Gpu
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.report import Report, Worker
from gpudiag.model.snapshot import Observation
from gpudiag.tui.frame import GpuPoint, Measure
from gpudiag.waits.communicators import End, Group, groups


def measures_of(observation: Observation, reports: Iterable[Report]) -> dict[int, Measure]:
    """By pid, of every worker of these reports."""
    gpus = {gpu.uuid: gpu for gpu in _gpus(observation)}
    positions = _positions(groups(observation))
    workers = [w for r in reports if r.target for w in r.target.workers]
    return {w.pid: _measure(w, observation, gpus.get(w.gpu or ""), positions.get(w.pid)) for w in workers}


def points_of(observation: Observation) -> tuple[GpuPoint, ...]:
    return tuple(GpuPoint(index=g.index, power_w=g.power_w, sm_percent=sm_percent(g)) for g in _gpus(observation))


def sm_percent(gpu: Gpu) -> float | None:
    """Multiprocessors at work where the card counts them; else the time with any kernel, which a waiting one fills too."""
    if gpu.gpm is not None and gpu.gpm.sm is not None:
        return gpu.gpm.sm
    return gpu.utilisation_percent


def _gpus(observation: Observation) -> Sequence[Gpu]:
    reading = observation.last.gpus
    return reading.value.gpus if isinstance(reading, Ok) else ()


def _measure(worker: Worker, observation: Observation, gpu: Gpu | None, position: tuple[int, int] | None) -> Measure:
    launched, behind = position if position is not None else (None, 0)
    return Measure(
        gpu=gpu.index if gpu else None,
        power_w=gpu.power_w if gpu else None,
        sm_percent=sm_percent(gpu) if gpu else None,
        cpu_percent=cpu_percent(observation, worker.pid),
        launched=launched,
        behind=behind,
    )


def cpu_percent(observation: Observation, pid: int) -> float | None:
    """Processor time of all threads between the last two looks, in percent of one core."""
    if not observation.has_change:
        return None
    before, now = observation.snapshots[-2], observation.last
    earlier, later = before.process(pid), now.process(pid)
    seconds = now.monotonic_s - before.monotonic_s
    if earlier is None or later is None or not _same(earlier, later) or min(seconds, now.host.clock_ticks) <= 0:
        return None
    return max(0, later.cpu_ticks - earlier.cpu_ticks) / now.host.clock_ticks / seconds * 100


def _same(earlier: Process, later: Process) -> bool:
    return earlier.start_ticks == later.start_ticks


def _positions(found: Iterable[Group]) -> dict[int, tuple[int, int]]:
    """By pid: collectives launched and how many behind, in the communicator where somebody lags, else in the largest."""
    best: dict[int, tuple[tuple[bool, int, int], int, int]] = {}
    for group in found:
        lags = {end.pid: behind(group, end) for end in group.ends}
        for end in group.ends:
            weight = (any(lags.values()), group.size, end.now.total)
            if end.pid not in best or weight > best[end.pid][0]:
                best[end.pid] = (weight, end.now.total, lags[end.pid])
    return {pid: (total, lag) for pid, (_, total, lag) in best.items()}


def behind(group: Group, end: End) -> int:
    """Collectives that others launched and this rank has not; 0 while anybody moves, since healthy ranks run ahead too."""
    return max(e.now.total for e in group.ends) - end.now.total if group.unmoved else 0
