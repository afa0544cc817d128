"""One host at one instant, and a series of such instants."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from msgspec import Struct

from gpudiag.model.collective import FlightAnalysis
from gpudiag.model.communicator import RasCommunicator
from gpudiag.model.file import FileFact, FileLock
from gpudiag.model.gpu import GpuInventory, XidEvent
from gpudiag.model.kernel import KernelDump
from gpudiag.model.metrics import TokenCounts
from gpudiag.model.network import Socket
from gpudiag.model.process import Process
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable

SNAPSHOT_SCHEMA: Final = "gpudiag.snapshot/1"


class Host(Struct, frozen=True, kw_only=True):
    """The machine and the observer's place on it. `clock_ticks` is ticks per second of the cpu_ticks fields."""

    name: str
    kernel: str
    boot_id: str
    cpu_count: int
    clock_ticks: int
    observer_uid: int
    pid_namespace: int | None = None
    can_trace: bool = False
    """CAP_SYS_PTRACE in the observer's effective set."""
    yama_scope: int | None = None
    """/proc/sys/kernel/yama/ptrace_scope, None where the kernel has no Yama."""
    container: str | None = None
    """docker, kubernetes, podman ... when the observer runs inside one."""


class Gap(Struct, frozen=True, kw_only=True):
    """Something that a source which did answer could not say, why, and what to type so that it can."""

    source: str
    reason: str
    help: str


class Snapshot(Struct, frozen=True, kw_only=True, dict=True):
    """Everything that was read in one look.

    `at` is Unix time and `monotonic_s` the monotonic clock, both in seconds at the start of the look. `processes` holds
    the server's processes in full and, with fewer fields, those at the other end of its sockets, pipes and locks.
    """

    host: Host
    at: float
    monotonic_s: float
    processes: tuple[Process, ...]
    roots: tuple[int, ...] = ()
    """The pids whose trees were looked at in full."""
    sockets: Ok[tuple[Socket, ...]] | Unavailable | Failed = NOT_ASKED
    file_locks: Ok[tuple[FileLock, ...]] | Unavailable | Failed = NOT_ASKED
    files: tuple[FileFact, ...] = ()
    gpus: Ok[GpuInventory] | Unavailable | Failed = NOT_ASKED
    xids: Ok[tuple[XidEvent, ...]] | Unavailable | Failed = NOT_ASKED
    """Errors of the NVIDIA driver in the kernel log, oldest first."""
    ras: Ok[tuple[RasCommunicator, ...]] | Unavailable | Failed = NOT_ASKED
    """Communicators as NCCL's own service tells them; asked only where memory could not be read, or on request."""
    flight: Ok[FlightAnalysis] | Unavailable | Failed = NOT_ASKED
    """The flight-recorder dumps of all ranks, compared."""
    kernels: Ok[tuple[KernelDump, ...]] | Unavailable | Failed = NOT_ASKED
    """CUDA core dumps of ranks, taken after the last look: what was resident on their GPUs."""
    tokens: dict[int, Ok[TokenCounts] | Unavailable | Failed] = {}
    """By root pid of a server that was asked for its own counters after the last look: whether tokens came."""
    gaps: tuple[Gap, ...] = ()
    took_s: float = 0.0
    stopped_s: float = 0.0
    """Time for which a thread of the target was held stopped by this look."""
    schema: str = SNAPSHOT_SCHEMA

    def process(self, pid: int) -> Process | None:
        return self._by_pid.get(pid)

    @cached_property
    def _by_pid(self) -> dict[int, Process]:
        return {p.pid: p for p in reversed(self.processes)}


class Observation(Struct, frozen=True, kw_only=True):
    """One or more looks at the same server, oldest first. One look carries no information about change."""

    snapshots: tuple[Snapshot, ...]

    @property
    def first(self) -> Snapshot:
        return self.snapshots[0]

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]

    @property
    def span_s(self) -> float:
        """Seconds between the first and the last look."""
        return self.last.monotonic_s - self.first.monotonic_s

    @property
    def has_change(self) -> bool:
        """Whether 'did not move' means anything: at least two looks."""
        return len(self.snapshots) > 1
