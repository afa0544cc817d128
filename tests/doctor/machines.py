"""Facts made by hand: a healthy machine with two GPUs, and twins of it with one thing changed."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from gpudiag.model.doctor import CheckResult
from gpudiag.model.facts import (
    Asked,
    Cgroup,
    Cpu,
    Driver,
    Facts,
    Gpu,
    GpuSet,
    KernelLog,
    KernelModule,
    Limit,
    PciGpu,
    PeerLink,
    SharedMemory,
    Space,
    System,
    Tracing,
)
from gpudiag.model.reading import Ok, Unavailable
from gpudiag.rules.preflight import registry

T = TypeVar("T")
AT = 1_800_000_000.0
GIB = 1 << 30


def ok(value: T) -> Ok[T]:
    return Ok(value=value, at=AT)


def gpu(index: int = 0, **changes: Any) -> Gpu:
    plain: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA RTX PRO 6000",
        "bus_id": f"0000:{index + 1:02x}:00.0",
        "capability": ok("12.0"),
        "memory_bytes": ok(96 * GIB),
        "memory_used_bytes": ok(GIB // 4),
        "utilization_percent": ok(0),
        "vbios": ok("98.02"),
        "persistence": ok(True),
        "compute_mode": ok(0),
        "mig": ok(False),
        "performance_state": ok(8),
        "clocks_event_reasons": ok(0x1),
        "link_gen": ok(1),
        "link_gen_max": ok(5),
        "link_width": ok(16),
        "link_width_max": ok(16),
        "nvlinks": ok(()),
        "fabric_state": ok(0),
        "ecc_uncorrected": ok(0),
        "rows_pending": ok(False),
        "rows_failed": ok(False),
        "processes": ok(()),
    }
    return Gpu(**{**plain, **changes})


def gpu_set(*gpus: Gpu, driver: str = "580.159.04", cuda: str = "13.0", peers: tuple[PeerLink, ...] = ()) -> Ok[GpuSet]:
    return ok(GpuSet(driver=Driver(version=driver, cuda=cuda), gpus=gpus or (gpu(0), gpu(1)), peers=peers))


def pci(index: int, **changes: Any) -> PciGpu:
    plain: dict[str, Any] = {
        "address": f"0000:{index + 1:02x}:00.0",
        "bridges": (),
        "iommu_domain": ok("identity"),
        "link_width": "16",
        "link_width_max": "16",
    }
    return PciGpu(**{**plain, **changes})


def system(**changes: Any) -> System:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04"
    space = Space(path="/", fs_type="ext4", total_bytes=500 * GIB, free_bytes=200 * GIB)
    plain: dict[str, Any] = {
        "boot_at": ok(AT - 1000),
        "cpu": ok(Cpu(vendor="AuthenticAMD", cores=32, virtual=False)),
        "memory_bytes": ok(512 * GIB),
        "kernel_module": ok(KernelModule(version="580.159.04", open=True, text=text)),
        "gpus": gpu_set(),
        "pci": ok((pci(0), pci(1))),
        "kernel_options": ok("iommu=pt"),
        "shared_memory": ok(SharedMemory(space=replace(space, path="/dev/shm", total_bytes=64 * GIB, free_bytes=60 * GIB))),
        "limits": ok(
            (Limit(name="Max open files", soft=1024, hard=1 << 20), Limit(name="Max stack size", soft=8 << 20, hard=None))
        ),
        "cgroup": ok(Cgroup(memory_bytes=None, pids=None, path="/")),
        "tracing": ok(Tracing(yama_scope=None, can_trace=False, uid=1000)),
        "numa_balancing": ok(False),
        "numa_calls": ok(True),
        "governors": ok(("performance",)),
        "hugepages": ok("madvise"),
        "clock_synchronised": ok(True),
        "interfaces": ok(("eth0", "lo")),
        "infiniband": ok(()),
        "environment": {},
        "nccl_files": {},
        "listeners": ok(()),
        "jit_locks": ok(()),
        "caches": ok(()),
        "p2p_caches": ok(()),
        "kernel_log": ok(KernelLog(xids=())),
        "spaces": ok((space,)),
        "tools": {},
    }
    return System(**{**plain, **changes})


def facts(asked: Asked | None = None, **changes: Any) -> Facts:
    """A healthy machine; `changes` are fields of Facts, or of its System."""
    own = {name: changes.pop(name) for name in list(changes) if name in Facts.__struct_fields__}
    return Facts(**{"host": "node-1", "at": AT, "asked": asked or Asked(), "system": system(**changes), **own})


def result(code: str, case: Facts) -> CheckResult:
    check = registry.check(code)
    assert check is not None, code
    return check.run(case)


def refused() -> Unavailable:
    return Unavailable(reason="may not be read", help="sudo gpudiag doctor")


def behind_iommu() -> dict[str, Any]:
    """Changes of a machine whose two GPUs reach each other through an IOMMU that translates."""
    return {"pci": ok((pci(0, iommu_domain=ok("DMA")), pci(1, iommu_domain=ok("DMA"))))}
