"""One GPU through NVML. Runs only in the child that may be killed; nothing else of gpudiag imports this module.

Each value is asked for on its own: a card or a driver that lacks one says so in `Gpu.unread`, and is not asked again.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from gpudiag.model.gpu import Fabric, Gpm, Gpu, GpuProcess, Memory, NvLink, PcieLink

T = TypeVar("T")

N: Any = importlib.import_module("pynvml")
"""nvidia-ml-py (tried: 13.615), loaded here and nowhere else."""

ALL_LINKS: Final = 0xFFFFFFFF
MOST_LINKS: Final = 32
MOST_INSTANCES: Final = 32
DIVIDED: Final = "divided by MIG: processes are listed with their instance"

_REASONS: Final = {
    0x1: "gpu-idle",
    0x2: "application-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal-slowdown",
    0x40: "hw-thermal-slowdown",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}
"""nvmlClocksEventReason* (nvml.h)."""

_GPM: Final = {
    "graphics": "GRAPHICS_UTIL",
    "sm": "SM_UTIL",
    "sm_occupancy": "SM_OCCUPANCY",
    "tensor": "ANY_TENSOR_UTIL",
    "dram": "DRAM_BW_UTIL",
    "fp32": "FP32_UTIL",
    "integer": "INTEGER_UTIL",
    "nvlink_tx_mib_s": "NVLINK_TOTAL_TX_PER_SEC",
    "nvlink_rx_mib_s": "NVLINK_TOTAL_RX_PER_SEC",
    "pcie_tx_mib_s": "PCIE_TX_PER_SEC",
    "pcie_rx_mib_s": "PCIE_RX_PER_SEC",
}
_FIELDS: Final = {
    "power": ("NVML_FI_DEV_POWER_INSTANT", 0),
    "energy": ("NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0),
    "nvlink.tx": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", ALL_LINKS),
    "nvlink.rx": ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", ALL_LINKS),
}
_HEALTH_FIELDS: Final = {
    "links": ("NVML_FI_DEV_NVLINK_LINK_COUNT", 0),
    "recovery_action": ("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", 0),
}
_LINK_ERRORS: Final = {
    "nvlink.crc-flit": ("NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 0),
    "nvlink.crc-data": ("NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 0),
    "nvlink.replay": ("NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 0),
    "nvlink.recovery": ("NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 0),
}
_FABRIC_STATES: Final = ("not supported", "not started", "in progress", "completed")


class Device:
    """One GPU over several samples. `say` is told what is about to be asked, so that a call that hangs has a name.

    Without `health` only what tells the state is asked: utilisation, power, clocks, memory, processes, performance counters.
    """

    def __init__(self, index: int, say: Callable[[str], None], *, health: bool = True, instance: Any = None) -> None:
        """`instance` is the handle of a MIG instance of the GPU `index`; it has its PCI address and its number."""
        self._health = health
        self._fields: dict[str, int] = {}
        self.index = index
        self._say = say
        self._refused: dict[str, str] = {}
        self._unread: dict[str, str] = {}
        whole = N.nvmlDeviceGetHandleByIndex(index)
        self._handle = whole if instance is None else instance
        self._uuid = _text(N.nvmlDeviceGetUUID(self._handle))
        self._pci = pci_address(_text(N.nvmlDeviceGetPciInfo(whole).busId))
        self._name = _text(N.nvmlDeviceGetName(self._handle))
        self._gpm: tuple[Any, float] | None = None
        self._seen_us = 0
        self.instances = self._divided() if instance is None else ()
        if self.instances:
            self._refused["processes"] = self._refused["processes.sm_percent"] = DIVIDED

    def _divided(self) -> tuple[Any, ...]:
        """Handles of the MIG instances of a GPU; none where it is whole, or where the driver knows no MIG."""
        self._say(f"MIG mode of GPU {self.index}")
        try:
            if not N.nvmlDeviceGetMigMode(self._handle)[0]:
                return ()
            numbers = range(min(N.nvmlDeviceGetMaxMigDeviceCount(self._handle), MOST_INSTANCES))
        except (N.NVMLError, AttributeError):
            return ()
        found = []
        for number in numbers:
            try:
                found.append(N.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, number))
            except N.NVMLError:
                # Numbers of instances that were destroyed stay empty.
                continue
        return tuple(found)

    def sample(self) -> Gpu:
        """Everything that can be read now. Raises NVMLError only if the GPU is lost."""
        started = time.perf_counter()
        self._unread = {}
        h, get = self._handle, self._get
        self._fields = get("fields", self._read_fields) or {}
        used = get("memory_used_bytes", lambda: N.nvmlDeviceGetMemoryInfo(h))
        rates = get("utilisation_percent", lambda: N.nvmlDeviceGetUtilizationRates(h))
        return Gpu(
            uuid=self._uuid,
            pci=self._pci,
            index=self.index,
            name=self._name,
            memory_used_bytes=int(used.used) if used is not None else None,
            memory_total_bytes=int(used.total) if used is not None else None,
            utilisation_percent=int(rates.gpu) if rates is not None else None,
            memory_percent=int(rates.memory) if rates is not None else None,
            power_w=get("power_w", self._power),
            power_limit_w=get("power_limit_w", lambda: N.nvmlDeviceGetEnforcedPowerLimit(h) / 1000),
            energy_mj=self._fields.get("energy"),
            sm_clock_mhz=get("sm_clock_mhz", lambda: int(N.nvmlDeviceGetClockInfo(h, N.NVML_CLOCK_SM))),
            sm_clock_max_mhz=get("sm_clock_max_mhz", lambda: int(N.nvmlDeviceGetMaxClockInfo(h, N.NVML_CLOCK_SM))),
            memory_clock_mhz=get("memory_clock_mhz", lambda: int(N.nvmlDeviceGetClockInfo(h, N.NVML_CLOCK_MEM))),
            performance_state=get("performance_state", lambda: int(N.nvmlDeviceGetPerformanceState(h))),
            temperature_c=get("temperature_c", lambda: int(N.nvmlDeviceGetTemperature(h, N.NVML_TEMPERATURE_GPU))),
            event_reasons=get("event_reasons", lambda: event_reasons(int(N.nvmlDeviceGetCurrentClocksEventReasons(h)))),
            pcie=get("pcie", self._pcie) if self._health else None,
            nvlink=get("nvlink", self._nvlink),
            memory=self._memory() if self._health else None,
            recovery_action=self._recovery(),
            fabric=get("fabric", self._fabric) if self._health else None,
            gpm=get("gpm", self._performance),
            processes=self._processes(),
            took_s=time.perf_counter() - started,
            unread=dict(self._unread),
        )

    def _get(self, field: str, read: Callable[[], T]) -> T | None:
        """The value, or None with the reason kept. What the card does not support is asked for once only."""
        if field in self._refused:
            self._unread[field] = self._refused[field]
            return None
        self._say(f"{field} of GPU {self.index}")
        try:
            return read()
        except N.NVMLError as error:
            if error.value == N.NVML_ERROR_GPU_IS_LOST:
                raise
            self._unread[field] = str(error)
            if error.value in (N.NVML_ERROR_NOT_SUPPORTED, N.NVML_ERROR_FUNCTION_NOT_FOUND, N.NVML_ERROR_NO_PERMISSION):
                self._refused[field] = str(error)
        except AttributeError as error:
            self._refused[field] = self._unread[field] = f"nvidia-ml-py is too old: {error}"
        return None

    def _read_fields(self) -> dict[str, int]:
        """Field values in one call; what the card does not have is left out and named in `unread`."""
        wanted = {**_FIELDS, **(_HEALTH_FIELDS if self._health else {}), **(_LINK_ERRORS if self._health else {})}
        values = N.nvmlDeviceGetFieldValues(self._handle, [(getattr(N, name), scope) for name, scope in wanted.values()])
        found = {}
        for field, value in zip(wanted, values, strict=True):
            if value.nvmlReturn != N.NVML_SUCCESS:
                self._unread[field] = str(N.NVMLError(value.nvmlReturn))
                continue
            wide = value.valueType in (N.NVML_VALUE_TYPE_UNSIGNED_LONG, N.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
            found[field] = int(value.value.ullVal if wide else value.value.uiVal)
        return found

    def _power(self) -> float:
        """Now, in watts. The older call averages over a second on some cards."""
        now = self._fields.get("power")
        return (now if now is not None else float(N.nvmlDeviceGetPowerUsage(self._handle))) / 1000

    def _pcie(self) -> PcieLink:
        h, get = self._handle, self._get
        return PcieLink(
            generation=get("pcie.generation", lambda: int(N.nvmlDeviceGetCurrPcieLinkGeneration(h))),
            generation_max=get("pcie.generation_max", lambda: int(N.nvmlDeviceGetMaxPcieLinkGeneration(h))),
            width=get("pcie.width", lambda: int(N.nvmlDeviceGetCurrPcieLinkWidth(h))),
            width_max=get("pcie.width_max", lambda: int(N.nvmlDeviceGetMaxPcieLinkWidth(h))),
            replays=get("pcie.replays", lambda: int(N.nvmlDeviceGetPcieReplayCounter(h))),
        )

    def _nvlink(self) -> NvLink | None:
        """None for a card without NVLink. Which links are up is a matter of health."""
        if "nvlink.tx" not in self._fields and not self._fields.get("links"):
            return None
        up = 0
        down: list[int] = []
        for link in range(min(self._fields.get("links", 0), MOST_LINKS)):
            state = N.nvmlDeviceGetNvLinkState(self._handle, link)
            up += bool(state)
            down += [] if state else [link]
        return NvLink(
            links_up=up,
            links_down=tuple(down),
            tx_kib=self._fields.get("nvlink.tx"),
            rx_kib=self._fields.get("nvlink.rx"),
            errors={name: value for name in _LINK_ERRORS if (value := self._fields.get(name)) is not None},
        )

    def _memory(self) -> Memory:
        rows = self._get("memory.remapped", lambda: N.nvmlDeviceGetRemappedRows(self._handle))
        lost, fixed = "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_MEMORY_ERROR_TYPE_CORRECTED"
        return Memory(
            ecc_uncorrected_volatile=self._ecc("memory.ecc_uncorrected", lost, "NVML_VOLATILE_ECC"),
            ecc_uncorrected_aggregate=self._ecc("memory.ecc_uncorrected_aggregate", lost, "NVML_AGGREGATE_ECC"),
            ecc_corrected_volatile=self._ecc("memory.ecc_corrected", fixed, "NVML_VOLATILE_ECC"),
            remapped_uncorrectable=int(rows[1]) if rows is not None else None,
            remap_pending=bool(rows[2]) if rows is not None else None,
            remap_failed=bool(rows[3]) if rows is not None else None,
        )

    def _ecc(self, field: str, kind: str, counter: str) -> int | None:
        return self._get(field, lambda: int(N.nvmlDeviceGetTotalEccErrors(self._handle, getattr(N, kind), getattr(N, counter))))

    def _recovery(self) -> str | None:
        number = self._fields.get("recovery_action")
        if number is None:
            return None
        prefix = "NVML_GPU_RECOVERY_ACTION_"
        names = {getattr(N, n): n.removeprefix(prefix).lower().replace("_", "-") for n in dir(N) if n.startswith(prefix)}
        return names.get(number, f"action-{number}")

    def _fabric(self) -> Fabric:
        info = N.c_nvmlGpuFabricInfoV_t()
        info.version = N.nvmlGpuFabricInfo_v2
        N.nvmlDeviceGetGpuFabricInfoV(self._handle, N.byref(info))
        state = int(info.state)
        return Fabric(state=_FABRIC_STATES[state] if state < len(_FABRIC_STATES) else f"state {state}", status=int(info.status))

    def _performance(self) -> Gpm | None:
        """Between the sample before and this one; None for the first."""
        if self._gpm is None and not N.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
            raise N.NVMLError(N.NVML_ERROR_NOT_SUPPORTED)
        sample = N.nvmlGpmSampleAlloc()
        N.nvmlGpmSampleGet(self._handle, sample)
        now = time.monotonic()
        before, self._gpm = self._gpm, (sample, now)
        if before is None:
            self._unread["gpm"] = "the first sample: it takes two"
            return None
        try:
            return _metrics(before[0], sample, now - before[1])
        finally:
            N.nvmlGpmSampleFree(before[0])

    def _processes(self) -> tuple[GpuProcess, ...]:
        listed = self._get("processes", self._listed) or []
        busy = self._get("processes.sm_percent", self._busy) or {}
        memory = {int(p.pid): p.usedGpuMemory for p in listed}
        return tuple(
            GpuProcess(
                pid=pid, memory_bytes=int(used) if (used := memory.get(pid)) is not None else None, sm_percent=busy.get(pid)
            )
            for pid in sorted(memory.keys() | busy.keys())
        )

    def _listed(self) -> list[Any]:
        """By the call of drivers since 510, or that of older ones. The name without a version raises something else."""
        try:
            return list(N.nvmlDeviceGetComputeRunningProcesses_v3(self._handle))
        except N.NVMLError as error:
            if error.value != N.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
            return list(N.nvmlDeviceGetComputeRunningProcesses_v2(self._handle))

    def _busy(self) -> dict[int, int]:
        """SM share by pid from the newest samples. RTX PRO 6000 answers only the newer of the two calls (HAMi-core #218)."""
        try:
            samples = N.nvmlDeviceGetProcessUtilization(self._handle, self._seen_us)
        except N.NVMLError as error:
            if error.value == N.NVML_ERROR_NOT_FOUND:
                return {}
            samples = N.nvmlDeviceGetProcessesUtilizationInfo(self._handle, self._seen_us)
        newest = {int(s.pid): (int(s.timeStamp), int(s.smUtil)) for s in sorted(samples, key=lambda s: s.timeStamp)}
        self._seen_us = max([self._seen_us, *(at for at, _ in newest.values())])
        return {pid: share for pid, (_, share) in newest.items() if pid and share <= 100}


def _metrics(before: Any, after: Any, window_s: float) -> Gpm:
    get = N.c_nvmlGpmMetricsGet_t()
    get.version, get.sample1, get.sample2, get.numMetrics = N.NVML_GPM_METRICS_GET_VERSION, before, after, len(_GPM)
    for place, name in enumerate(_GPM.values()):
        get.metrics[place].metricId = getattr(N, f"NVML_GPM_METRIC_{name}")
    N.nvmlGpmMetricsGet(get)
    values = {
        field: float(get.metrics[place].value)
        for place, field in enumerate(_GPM)
        if get.metrics[place].nvmlReturn == N.NVML_SUCCESS
    }
    return Gpm(window_s=window_s, **values)


def event_reasons(mask: int) -> tuple[str, ...]:
    """Names of the bits of nvmlDeviceGetCurrentClocksEventReasons; an unknown bit keeps its number."""
    known = [name for bit, name in _REASONS.items() if mask & bit]
    rest = mask & ~sum(_REASONS)
    return (*known, *([f"other-{rest:#x}"] if rest else []))


def pci_address(bus_id: str) -> str:
    """NVML's 00000000:1B:00.0 as the kernel writes it: 0000:1b:00.0."""
    match = re.fullmatch(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])", bus_id)
    if match is None:
        return bus_id
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
