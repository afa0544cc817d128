"""What the GPU of each process does: compute, wait inside a kernel, nothing.

Signature of a wait inside a collective on an H200 (driver 580): utilisation 100, GPM graphics 100.0, tensor and DRAM 0, power
128 W of 700. A stuck kernel looks the same; how many multiprocessors are occupied does not tell them apart.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.finding import Evidence
from gpudiag.model.gpu import Gpu
from gpudiag.model.node import Node
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.snapshot import Observation, Snapshot

DeviceState = Literal["computing", "spinning", "resident", "busy", "idle", "unknown"]
"""computing: tensor cores or memory work. spinning: a kernel is resident all the time and nothing is computed. resident: the
same without performance counters, so whether something is computed is not known for sure. busy: kernels come and go.
idle: nothing is launched."""

WAITING: Final[frozenset[DeviceState]] = frozenset({"spinning", "resident"})

UNCLEAR: Final[frozenset[DeviceState]] = frozenset({"spinning", "resident", "unknown", "idle"})
"""A thread that waits for a GPU in one of these states was not seen to get anywhere."""

_RESIDENT_PERCENT: Final = 99.0
_IDLE_PERCENT: Final = 1.0
_WORK_PERCENT: Final = 0.5
_MOST_WAITING_POWER: Final = 0.4
"""Share of the power limit. Waiting: 0.18 on an H200, 0.2 on an RTX PRO 6000, 0.15 on a GB10; computing: 0.9 and more."""


class Device(Struct, frozen=True, kw_only=True):
    """The GPU of one process. `figures` is what the state was read from."""

    gpu: Gpu
    state: DeviceState
    figures: str
    at: float

    @property
    def node(self) -> Node:
        """The kernel that is resident on it."""
        return kernel_node(self.gpu.uuid)

    def evidence(self, claim: str) -> Evidence:
        return Evidence(source="gpu-counters", claim=claim, excerpt=self.figures, at=self.at)


def kernel_node(uuid: str) -> Node:
    return f"gpu:{uuid}/kernel"


def devices(observation: Observation) -> dict[int, Device]:
    """By pid, of every process whose GPU is known. A GPU that several processes share is told of none of them."""
    last, first = observation.last, observation.first
    if not isinstance(last.gpus, Ok):
        return {}
    found = {p.pid: gpu for p in last.processes if (gpu := _gpu_of(p, last)) is not None}
    users: dict[str, int] = {}
    for gpu in found.values():
        users[gpu.uuid] = users.get(gpu.uuid, 0) + 1
    at = last.gpus.at
    return {
        pid: Device(gpu=gpu, state=_state(gpu, _earlier(gpu, first, last)), figures=figures(gpu), at=at)
        for pid, gpu in found.items()
        if users[gpu.uuid] == 1
    }


def _gpu_of(process: Process, snapshot: Snapshot) -> Gpu | None:
    """By the driver's list of processes; where that shows other pids, by the device that NCCL recorded."""
    gpus = snapshot.gpus.value.gpus if isinstance(snapshot.gpus, Ok) else ()
    pids = {process.pid, *process.ns_pids}
    listed = [g for g in gpus if any(p.pid in pids for p in g.processes)]
    numbers = {c.nvml_device for n in (process.nccl.value if isinstance(process.nccl, Ok) else ()) for c in n.communicators}
    named = [g for g in gpus if g.index in numbers]
    if len(listed) == 1 and (not named or named == listed):
        return listed[0]
    both = [g for g in listed if g in named] if listed else named
    return both[0] if len(both) == 1 else None


def _earlier(gpu: Gpu, first: Snapshot, last: Snapshot) -> Gpu | None:
    if first is last or not isinstance(first.gpus, Ok):
        return None
    return first.gpus.value.gpu(gpu.uuid)


def _state(gpu: Gpu, earlier: Gpu | None) -> DeviceState:
    gpm = gpu.gpm
    if gpm is not None and gpm.graphics is not None:
        works = (gpm.tensor or 0.0) >= _WORK_PERCENT or (gpm.dram or 0.0) >= _WORK_PERCENT
        if gpm.graphics >= _RESIDENT_PERCENT:
            return "computing" if works else "spinning"
        if gpm.graphics < _IDLE_PERCENT:
            return "idle"
        return "computing" if works else "busy"
    return _coarse_state(gpu, earlier)


def _coarse_state(gpu: Gpu, earlier: Gpu | None) -> DeviceState:
    """Without performance counters. Utilisation is the mean over up to a second before the look, so it takes two looks."""
    if gpu.utilisation_percent is None or earlier is None or earlier.utilisation_percent is None:
        return "unknown"
    if gpu.utilisation_percent == 0:
        return "idle"
    if gpu.memory_percent:
        return "computing"
    low = min(gpu.utilisation_percent, earlier.utilisation_percent)
    if low < _RESIDENT_PERCENT or earlier.memory_percent:
        return "busy"
    if gpu.power_w is None or not gpu.power_limit_w:
        return "resident"
    return "resident" if gpu.power_w < _MOST_WAITING_POWER * gpu.power_limit_w else "busy"


def figures(gpu: Gpu) -> str:
    """'GPU 1: utilisation 100 %, memory 0 %, 128 W of 700, graphics 100.0 %, SM 18.2 %, tensor 0.0 %, DRAM 0.0 %'."""
    parts = []
    if gpu.utilisation_percent is not None:
        parts.append(f"utilisation {gpu.utilisation_percent} %")
    if gpu.memory_percent is not None:
        parts.append(f"memory {gpu.memory_percent} %")
    if gpu.power_w is not None:
        limit = f" of {gpu.power_limit_w:.0f}" if gpu.power_limit_w else ""
        parts.append(f"{gpu.power_w:.0f} W{limit}")
    if gpu.gpm is not None:
        names = (("graphics", gpu.gpm.graphics), ("SM", gpu.gpm.sm), ("tensor", gpu.gpm.tensor), ("DRAM", gpu.gpm.dram))
        parts += [f"{name} {value:.1f} %" for name, value in names if value is not None]
    return f"GPU {gpu.index}: {', '.join(parts) or 'nothing was readable'}"
