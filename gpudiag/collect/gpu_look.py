"""The GPU side of a look: what the driver shows, what the kernel logged, what NCCL counts."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from msgspec.structs import replace

from gpudiag.collect.deadline import Guard
from gpudiag.collect.nccl_layouts import Layouts
from gpudiag.collect.nccl_state import NcclReading, read_states
from gpudiag.collect.nvml import GpuReading, Nvml, has_driver
from gpudiag.collect.process_reader import WITHHELD, Source
from gpudiag.collect.ras import address_of, query
from gpudiag.collect.xid import XidReading, read_xids
from gpudiag.model.communicator import RasCommunicator
from gpudiag.model.gpu import Gpu
from gpudiag.model.process import Process
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable

RasReading: TypeAlias = Ok[tuple[RasCommunicator, ...]] | Unavailable | Failed

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
        self._ras: RasReading = NOT_ASKED

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
        states = read_states(candidates, guard, self._layouts)
        self._ras = NOT_ASKED
        unreadable = [p for p in processes if p.pid in states and not isinstance(states[p.pid], Ok)]
        if unreadable and has_driver():
            self._ask_service(unreadable, states)
        return states

    @property
    def ras(self) -> RasReading:
        """What NCCL's service said in this look; not asked where every rank's memory could be read."""
        return self._ras

    def _ask_service(self, unreadable: Sequence[Process], states: dict[int, NcclReading]) -> None:
        """One question for all of them: the service knows every rank of the job. What it answers about strangers is not used."""
        environ = unreadable[0].environ
        address = address_of(environ.value if isinstance(environ, Ok) else {})
        answer = query(address)
        if not isinstance(answer, Ok):
            self._ras = answer
            return
        self._ras = Ok(value=answer.value.communicators, at=answer.at, took_s=answer.took_s)
        for process in unreadable:
            inner = process.ns_pids[-1] if process.ns_pids else process.pid
            if found := answer.value.nccl(inner):
                states[process.pid] = Ok(value=found, at=answer.at, took_s=answer.took_s)


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
