"""The GPU side of a look: what the driver shows, what the kernel logged, what NCCL counts."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Final, NamedTuple, Self

from msgspec.structs import replace

from gpudiag.collect.deadline import Guard
from gpudiag.collect.nccl_layouts import Layouts
from gpudiag.collect.nccl_state import NcclReading, read_states
from gpudiag.collect.nvml import GpuReading, Nvml, has_driver
from gpudiag.collect.process_reader import WITHHELD, Source
from gpudiag.collect.xid import XidReading, read_xids
from gpudiag.model.gpu import Gpu
from gpudiag.model.process import Process
from gpudiag.model.reading import NOT_ASKED, Ok

_NVIDIA: Final = ("libcuda.", "libnccl")
_WITHHELD_FIELDS: Final = ("gpm", "nvlink.tx", "nvlink.rx", "processes.sm_percent")


class Devices(NamedTuple):
    """What was read of the devices in one look."""

    gpus: GpuReading
    xids: XidReading


class GpuSide:
    """Lives through all looks of an observation: the connection to the driver and the layouts that were worked out."""

    def __init__(self, withhold: AbstractSet[Source]) -> None:
        self._withhold = withhold
        self._nvml = Nvml()
        self._layouts = Layouts()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._nvml.close()

    def ask(self) -> None:
        """Start the driver's sample, so that it is ready when the rest of the look is."""
        if "gpus" not in self._withhold:
            self._nvml.ask()

    def devices(self) -> Devices:
        """The sample that was asked for, and the kernel's log of errors."""
        if "gpus" in self._withhold:
            return Devices(WITHHELD, WITHHELD)
        gpus = self._nvml.answer()
        if "gpm" in self._withhold and isinstance(gpus, Ok):
            gpus = replace(gpus, value=replace(gpus.value, gpus=tuple(map(without_counters, gpus.value.gpus))))
        return Devices(gpus, read_xids() if has_driver() else NOT_ASKED)

    def communicators(self, processes: Sequence[Process], guard: Guard) -> dict[int, NcclReading]:
        """By pid, of those processes that have CUDA or NCCL loaded."""
        candidates = [p.pid for p in processes if _may_have_nccl(p)]
        if not self._withhold.isdisjoint(("nccl", "memory")):
            return dict.fromkeys(candidates, WITHHELD)
        return read_states(candidates, guard, self._layouts)


def _may_have_nccl(process: Process) -> bool:
    if not isinstance(process.libraries, Ok):
        return False
    return any(library.rsplit("/", 1)[-1].startswith(_NVIDIA) for library in process.libraries.value)


def without_counters(gpu: Gpu) -> Gpu:
    """As on a card that offers no performance monitoring, no NVLink counters and no share per process."""
    nvlink = replace(gpu.nvlink, tx_kib=None, rx_kib=None) if gpu.nvlink is not None else None
    processes = tuple(replace(p, sm_percent=None) for p in gpu.processes)
    unread = {**gpu.unread, **dict.fromkeys(_WITHHELD_FIELDS, "withheld")}
    return replace(gpu, gpm=None, nvlink=nvlink, processes=processes, unread=unread)
