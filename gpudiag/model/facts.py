"""What doctor reads of a machine, before anything is judged. Schema gpudiag.facts/1.

Facts are recordable: as JSON they yield the same report on any other machine.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.build import SourceTree
from gpudiag.model.flags import FlagTable
from gpudiag.model.install import Environment, Install
from gpudiag.model.library import Library
from gpudiag.model.modelfiles import Drafter, ModelFiles
from gpudiag.model.reading import NOT_ASKED, Ok, Reading

FACTS_SCHEMA: Final = "gpudiag.facts/1"

ServedBy = Literal["sglang", "vllm"]


class Asked(Struct, frozen=True, kw_only=True):
    """What the person asked about. `gpus_for` are compute capabilities ('12.0') to judge instead of this machine's."""

    engine: ServedBy | None = None
    python: str | None = None
    others: tuple[str, ...] = ()
    """Further interpreters to compare with."""
    model: str | None = None
    draft: str | None = None
    tp: int = 1
    depth: Literal["fast", "full", "deep"] = "full"
    active: bool = False
    tests: tuple[str, ...] = ()
    """With `active`, only these tests on the GPUs; empty for all."""
    gpus_for: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    build: str | None = None
    """A source tree of kernels that is going to be built."""
    algorithm: str | None = None
    """What --speculative-algorithm or the method of --speculative-config is going to be."""
    context: int | None = None
    """Length in tokens of the longest request that will be served; None for the target's own."""
    pp: int = 1
    dp: int = 1
    arguments: tuple[str, ...] = ()
    """Options that the engine is going to be started with."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU as NVML describes it. A value that the driver refuses to give is Unavailable with NVML's reason."""

    index: int
    uuid: str
    name: str
    bus_id: str
    """PCI address in the form of sysfs: '0000:65:00.0'."""
    capability: Reading[str]
    """Compute capability, '12.0'."""
    memory_bytes: Reading[int]
    memory_used_bytes: Reading[int]
    utilization_percent: Reading[int]
    vbios: Reading[str]
    persistence: Reading[bool]
    compute_mode: Reading[int]
    """0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process."""
    mig: Reading[bool]
    performance_state: Reading[int]
    """0 is the fastest."""
    clocks_event_reasons: Reading[int]
    """Bit mask nvmlClocksEventReason*."""
    link_gen: Reading[int]
    link_gen_max: Reading[int]
    link_width: Reading[int]
    link_width_max: Reading[int]
    nvlinks: Reading[tuple[bool, ...]]
    """Whether each NVLink is active; empty for a GPU without."""
    fabric_state: Reading[int]
    """0 not supported, 1 not started, 2 in progress, 3 completed (nvmlGpuFabricInfo_t)."""
    ecc_uncorrected: Reading[int]
    """Uncorrected errors since the driver was loaded."""
    rows_pending: Reading[bool]
    rows_failed: Reading[bool]
    processes: Reading[tuple[GpuProcess, ...]]


class GpuProcess(Struct, frozen=True, kw_only=True):
    """A process with a context on a GPU. `name` is empty if its pid is not visible here (another pid namespace)."""

    pid: int
    memory_bytes: int
    name: str = ""


class Driver(Struct, frozen=True, kw_only=True):
    """Versions of the NVIDIA driver: what NVML reports. `cuda` is the newest CUDA it serves, '13.0'."""

    version: str
    cuda: str


class KernelModule(Struct, frozen=True, kw_only=True):
    """The loaded NVIDIA kernel module, from /proc/driver/nvidia/version."""

    version: str
    open: bool
    text: str


class PeerLink(Struct, frozen=True, kw_only=True):
    """What the driver says about direct access from one GPU to another: nvmlGpuP2PStatus, 0 is OK."""

    source: int
    target: int
    read: int
    write: int


class GpuSet(Struct, frozen=True, kw_only=True):
    """Everything NVML told in one go."""

    driver: Driver
    gpus: tuple[Gpu, ...]
    peers: tuple[PeerLink, ...] = ()


class Bridge(Struct, frozen=True, kw_only=True):
    """A PCIe bridge above a GPU and what its Access Control Services do: names of the enabled controls.

    An empty tuple is a bridge without ACS, or with all of it off.
    """

    address: str
    acs: Reading[tuple[str, ...]]


class PciGpu(Struct, frozen=True, kw_only=True):
    """A display controller of NVIDIA on the PCI bus, driver or not. `bridges` from the GPU up to its root port."""

    address: str
    bridges: tuple[Bridge, ...]
    iommu_domain: Reading[str]
    """Type of its IOMMU group: 'DMA' and 'DMA-FQ' translate, 'identity' does not; '' without IOMMU."""
    link_speed: str = ""
    link_width: str = ""
    link_speed_max: str = ""
    link_width_max: str = ""
    numa_node: int = -1


class Cpu(Struct, frozen=True, kw_only=True):
    """The processor. `virtual` if the kernel says that it runs under a hypervisor."""

    vendor: str
    cores: int
    virtual: bool


class Limit(Struct, frozen=True, kw_only=True):
    """A resource limit; None is unlimited."""

    name: str
    soft: int | None
    hard: int | None


class Cgroup(Struct, frozen=True, kw_only=True):
    """Limits of the control group of this process; None is unlimited."""

    memory_bytes: int | None
    pids: int | None
    path: str


class Space(Struct, frozen=True, kw_only=True):
    """A mounted file system with room left."""

    path: str
    fs_type: str
    total_bytes: int
    free_bytes: int
    writable: bool = True


class Leftover(Struct, frozen=True, kw_only=True):
    """A file in shared memory that nobody has open."""

    path: str
    size_bytes: int


class SharedMemory(Struct, frozen=True, kw_only=True):
    """The file system at /dev/shm."""

    space: Space
    leftovers: tuple[Leftover, ...] = ()


class Tracing(Struct, frozen=True, kw_only=True):
    """Who may look into other processes. `yama_scope` None is a kernel without Yama."""

    yama_scope: int | None
    can_trace: bool
    uid: int
    no_new_privs: bool = False


class Listener(Struct, frozen=True, kw_only=True):
    """Somebody who listens on a TCP port; `pid` None if the process is not visible to us."""

    port: int
    address: str
    pid: int | None = None
    name: str = ""


class JitLock(Struct, frozen=True, kw_only=True):
    """A lock file in a cache of compiled extensions. `held` if a process has it locked or open."""

    path: str
    age_s: float
    held: bool
    by_existence: bool
    """True for a lock that is taken by creating the file (torch's FileBaton): left over, it blocks for ever."""
    builders: tuple[int, ...] = ()
    """Pids of compilers that run now."""


class Cache(Struct, frozen=True, kw_only=True):
    """A directory where compiled kernels are kept. `exists` is false before first use; `space` is of its file system."""

    purpose: str
    path: str
    exists: bool
    space: Space


class P2pCache(Struct, frozen=True, kw_only=True):
    """What an engine remembers about peer access: pairs 'i->j' and whether it worked. `pairs` None: unreadable JSON."""

    path: str
    modified_at: float
    pairs: dict[str, bool] | None


class Xid(Struct, frozen=True, kw_only=True):
    """An error that the driver reported to the kernel log."""

    number: int
    bus_id: str
    line: str


class KernelLog(Struct, frozen=True, kw_only=True):
    """Xid errors since boot. Their absence proves nothing: a wedged GPU may report none."""

    xids: tuple[Xid, ...]


class System(Struct, frozen=True, kw_only=True):
    """The machine. Every part may be unreadable on its own, and is `not asked for` where only files were looked at."""

    boot_at: Reading[float] = NOT_ASKED
    cpu: Reading[Cpu] = NOT_ASKED
    memory_bytes: Reading[int] = NOT_ASKED
    kernel_module: Reading[KernelModule] = NOT_ASKED
    gpus: Reading[GpuSet] = NOT_ASKED
    pci: Reading[tuple[PciGpu, ...]] = NOT_ASKED
    kernel_options: Reading[str] = NOT_ASKED
    shared_memory: Reading[SharedMemory] = NOT_ASKED
    limits: Reading[tuple[Limit, ...]] = NOT_ASKED
    cgroup: Reading[Cgroup] = NOT_ASKED
    tracing: Reading[Tracing] = NOT_ASKED
    numa_balancing: Reading[bool] = NOT_ASKED
    numa_calls: Reading[bool] = NOT_ASKED
    """Whether the kernel lets this process ask for its memory policy (get_mempolicy)."""
    governors: Reading[tuple[str, ...]] = NOT_ASKED
    hugepages: Reading[str] = NOT_ASKED
    """Chosen mode of transparent huge pages: always, madvise or never."""
    clock_synchronised: Reading[bool] = NOT_ASKED
    interfaces: Reading[tuple[str, ...]] = NOT_ASKED
    infiniband: Reading[tuple[str, ...]] = NOT_ASKED
    environment: dict[str, str] = {}
    """Variables that engines, NCCL, CUDA and the loader read; nothing else."""
    nccl_files: dict[str, str] = {}
    """Text of each NCCL configuration file that exists."""
    listeners: Reading[tuple[Listener, ...]] = NOT_ASKED
    jit_locks: Reading[tuple[JitLock, ...]] = NOT_ASKED
    caches: Reading[tuple[Cache, ...]] = NOT_ASKED
    p2p_caches: Reading[tuple[P2pCache, ...]] = NOT_ASKED
    kernel_log: Reading[KernelLog] = NOT_ASKED
    spaces: Reading[tuple[Space, ...]] = NOT_ASKED
    tools: dict[str, str] = {}
    """Version line of each build tool found on PATH: nvcc, ninja, cmake, g++."""


class GpuTest(Struct, frozen=True, kw_only=True):
    """One GPU-side test that was really run: what, between which GPUs, and how it ended."""

    test: str
    gpus: tuple[int, ...]
    outcome: Literal["passed", "wrong-data", "failed", "denied", "hung", "not-built"]
    detail: str
    took_s: float


class Facts(Struct, frozen=True, kw_only=True):
    """Everything doctor read. Parts that were not asked for are Unavailable('not asked for')."""

    host: str
    at: float
    asked: Asked
    system: System
    install: Reading[Install] = NOT_ASKED
    libraries: Reading[tuple[Library, ...]] = NOT_ASKED
    """Libraries of `install` and of `others` together."""
    others: tuple[Install, ...] = ()
    """Further interpreters, for comparing the engines: SGLang and vLLM do not fit into one environment."""
    model: Reading[ModelFiles] = NOT_ASKED
    drafter: Reading[Drafter] = NOT_ASKED
    source_tree: Reading[SourceTree] = NOT_ASKED
    active: Reading[tuple[GpuTest, ...]] = NOT_ASKED
    flags: Reading[FlagTable] = NOT_ASKED
    """The options that the installed engine takes."""
    took_s: float = 0.0
    schema: str = FACTS_SCHEMA

    @property
    def environment(self) -> Environment | None:
        """The interpreter of `install` and what is installed in it; None where that was not asked for or could not be read."""
        found = self.install.value.environment if isinstance(self.install, Ok) else None
        return found.value if isinstance(found, Ok) else None
