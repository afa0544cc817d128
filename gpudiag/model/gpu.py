"""GPUs as the driver shows them (NVML), and what hardware errors the kernel wrote down."""

from __future__ import annotations

from msgspec import Struct


class GpuProcess(Struct, frozen=True, kw_only=True):
    """A process with a context on a GPU, as the driver lists it.

    `pid` is in the pid namespace of the driver's caller where the driver knows it, else a pid of the host.
    `sm_percent` is the share of time in which a kernel of this process was resident, over the driver's last sample.
    """

    pid: int
    memory_bytes: int | None = None
    sm_percent: int | None = None


class Gpm(Struct, frozen=True, kw_only=True):
    """GPU performance monitoring between two samples `window_s` apart (Hopper and newer). Shares are percent of the peak.

    `graphics` is the time in which any kernel was resident: 100 for one that never ends, 14 to 53 for a small model that
    serves (H200, driver 580). `sm` counts multiprocessors with a resident block, so one waiting block reads 1/132.
    """

    window_s: float
    graphics: float | None = None
    sm: float | None = None
    sm_occupancy: float | None = None
    tensor: float | None = None
    dram: float | None = None
    fp32: float | None = None
    integer: float | None = None
    nvlink_tx_mib_s: float | None = None
    nvlink_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None


class PcieLink(Struct, frozen=True, kw_only=True):
    """Generation and width now and at best (GPU and slot together), and link replays since boot."""

    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None
    replays: int | None = None


class NvLink(Struct, frozen=True, kw_only=True):
    """NVLink of one GPU: which of its links are up, KiB carried since the counters started, errors by kind."""

    links_up: int
    links_down: tuple[int, ...] = ()
    tx_kib: int | None = None
    rx_kib: int | None = None
    errors: dict[str, int] = {}


class Fabric(Struct, frozen=True, kw_only=True):
    """State of the NVSwitch fabric registration: 'not supported', 'not started', 'in progress' or 'completed'."""

    state: str
    status: int = 0
    """nvmlReturn of a completed registration; 0 is success."""


class Memory(Struct, frozen=True, kw_only=True):
    """Health of the GPU's memory. Counts are None where the GPU does not keep them."""

    ecc_uncorrected_volatile: int | None = None
    """Since the driver was loaded."""
    ecc_uncorrected_aggregate: int | None = None
    ecc_corrected_volatile: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU (or MIG instance) at one instant.

    What the driver or the card does not offer is None here and named with the reason in `unread`, keyed by field.
    """

    uuid: str
    pci: str
    """Domain:bus:device.function as the kernel writes it, lower case: 0000:1b:00.0."""
    index: int
    name: str
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilisation_percent: int | None = None
    """Share of the last sample period (1/6 to 1 s) in which any kernel was resident."""
    memory_percent: int | None = None
    """Share of the last sample period in which device memory was read or written."""
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_mj: int | None = None
    """Millijoule since the driver was loaded: two of them give the exact mean power between."""
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    performance_state: int | None = None
    temperature_c: int | None = None
    event_reasons: tuple[str, ...] | None = None
    """Why clocks are below their maximum: gpu-idle, sw-power-cap, hw-slowdown, hw-thermal-slowdown ..."""
    pcie: PcieLink | None = None
    nvlink: NvLink | None = None
    memory: Memory | None = None
    recovery_action: str | None = None
    """What the driver says must be done: none, gpu-reset, node-reboot, drain-p2p, drain-and-reset."""
    fabric: Fabric | None = None
    gpm: Gpm | None = None
    processes: tuple[GpuProcess, ...] = ()
    took_s: float = 0.0
    unread: dict[str, str] = {}

    def process(self, pid: int) -> GpuProcess | None:
        return next((p for p in self.processes if p.pid == pid), None)


class XidEvent(Struct, frozen=True, kw_only=True):
    """A hardware or application error that the NVIDIA kernel module logged.

    `at_s` is seconds after boot as the kernel log has it; `pid` and `process` are named by some Xids only.
    """

    number: int
    pci: str
    text: str
    at_s: float | None = None
    pid: int | None = None
    process: str | None = None


class GpuInventory(Struct, frozen=True, kw_only=True):
    """All GPUs the driver shows, with its version."""

    driver: str
    gpus: tuple[Gpu, ...]
    lost: dict[int, str] = {}
    """GPUs, by index, that the driver lists and that do not answer any more, with its error."""

    def gpu(self, uuid: str) -> Gpu | None:
        return next((g for g in self.gpus if g.uuid == uuid), None)
