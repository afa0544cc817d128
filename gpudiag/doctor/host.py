"""The kernel, the processor and the limits of this process."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from typing import Final

from gpudiag.doctor.reads import Root
from gpudiag.model.facts import Cgroup, Cpu, KernelModule, Limit, Tracing

_CAP_SYS_PTRACE: Final = 19
_GET_MEMPOLICY: Final = {"x86_64": 239, "aarch64": 236}
"""System call numbers: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h."""
_STA_UNSYNC: Final = 0x0040
_TIMEX_BYTES: Final = 256
_TIMEX_STATUS: Final = 40
"""struct timex on 64 bits: modes, four longs, status (include/uapi/linux/timex.h); 208 bytes in all."""
_UNLIMITED_V1: Final = 1 << 60
"""Control groups of version 1 write 'no limit' as the largest page-aligned number."""
_VERSION: Final = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")


def boot_at(root: Root) -> float:
    """Unix time at which the kernel started."""
    line = next(line for line in root.text("proc/stat").splitlines() if line.startswith("btime "))
    return float(line.split()[1])


def cpu(root: Root) -> Cpu:
    lines = root.text("proc/cpuinfo").splitlines()
    fields = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon}
    flags = fields.get("flags", fields.get("Features", "")).split()
    return Cpu(
        vendor=fields.get("vendor_id", fields.get("CPU implementer", "")),
        cores=sum(line.startswith("processor") for line in lines),
        virtual="hypervisor" in flags,
    )


def memory_bytes(root: Root) -> int:
    line = next(line for line in root.text("proc/meminfo").splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) * 1024


def kernel_module(root: Root) -> KernelModule:
    text = root.text("proc/driver/nvidia/version")
    first = text.splitlines()[0] if text else ""
    found = _VERSION.search(first)
    if found is None:
        raise ValueError(f"no version in {first[:100]!r}")
    return KernelModule(version=found[1], open="Open Kernel Module" in first, text=first)


def limits(root: Root) -> tuple[Limit, ...]:
    """The table of /proc/self/limits; its columns stand at fixed places."""
    found = []
    for line in root.text("proc/self/limits").splitlines()[1:]:
        name, soft, hard = line[:26].strip(), line[26:47].strip(), line[47:68].strip()
        if name:
            found.append(Limit(name=name, soft=_number(soft), hard=_number(hard)))
    return tuple(found)


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def cgroup(root: Root) -> Cgroup:
    """Memory and process limits that apply to this process: the lowest on the way from its group up to the root."""
    for line in root.text("proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            return _tightest(root, "sys/fs/cgroup", path, "memory.max", "pids.max")
    paths = dict(line.split(":", 2)[1:] for line in root.text("proc/self/cgroup").splitlines())
    memory = next((p for c, p in paths.items() if "memory" in c.split(",")), "/")
    return _tightest(root, "sys/fs/cgroup/memory", memory, "memory.limit_in_bytes", "pids.max")


def _tightest(root: Root, mount: str, path: str, memory: str, pids: str) -> Cgroup:
    least: dict[str, int | None] = {memory: None, pids: None}
    where = path
    parts = [p for p in path.split("/") if p not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        group = "/".join((mount, *parts[:depth]))
        for name in (memory, pids):
            value = _limit(root, f"{group}/{name}")
            known = least[name]
            if value is not None and (known is None or value < known):
                least[name], where = value, f"/{group}"
    return Cgroup(memory_bytes=least[memory], pids=least[pids], path=where)


def _limit(root: Root, path: str) -> int | None:
    """A limit, None for 'max' and for a file that a group of this kind does not have (the root group has none)."""
    try:
        number = _number(root.text(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return number if number is not None and number < _UNLIMITED_V1 else None


def tracing(root: Root) -> Tracing:
    status = dict(line.split(":", 1) for line in root.text("proc/self/status").splitlines() if ":" in line)
    try:
        scope: int | None = int(root.text("proc/sys/kernel/yama/ptrace_scope"))
    except FileNotFoundError:
        scope = None
    return Tracing(
        yama_scope=scope,
        can_trace=bool(int(status["CapEff"].strip(), 16) >> _CAP_SYS_PTRACE & 1),
        uid=int(status["Uid"].split()[0]),
        no_new_privs=status.get("NoNewPrivs", "").strip() == "1",
    )


def numa_balancing(root: Root) -> bool:
    return root.text("proc/sys/kernel/numa_balancing") != "0"


def numa_calls() -> bool:
    """Whether get_mempolicy is permitted. Raises OSError where the machine's number of the call is not known."""
    number = _GET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"no system call number for {os.uname().machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    mode = ctypes.c_int()
    if libc.syscall(number, ctypes.byref(mode), None, 0, None, 0) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.EPERM:
        return False
    raise OSError(code, f"get_mempolicy: {os.strerror(code)}")


def governors(root: Root) -> tuple[str, ...]:
    """The distinct governors of all CPUs. Raises FileNotFoundError where the kernel does not scale frequencies."""
    base = root.at("sys/devices/system/cpu")
    names = {
        (p / "scaling_governor").read_text().strip() for p in base.glob("cpu[0-9]*/cpufreq") if (p / "scaling_governor").exists()
    }
    if not names:
        raise FileNotFoundError(errno.ENOENT, "none", str(base / "cpu0/cpufreq/scaling_governor"))
    return tuple(sorted(names))


def hugepages(root: Root) -> str:
    text = root.text("sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", text)
    if chosen is None:
        raise ValueError(text[:80])
    return chosen[1]


def clock_synchronised() -> bool:
    """Whether a time service keeps the clock, by the kernel's own account. Raises OSError where that may not be asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "adjtimex"):
        raise OSError(errno.ENOSYS, "this C library has no adjtimex")
    # `modes` is 0: nothing is set.
    timex = ctypes.create_string_buffer(_TIMEX_BYTES)
    if libc.adjtimex(timex) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"adjtimex: {os.strerror(code)}")
    status = int.from_bytes(timex.raw[_TIMEX_STATUS : _TIMEX_STATUS + 4], sys.byteorder)
    return not status & _STA_UNSYNC


def kernel_options(root: Root) -> str:
    """The options of the kernel's command line that concern the IOMMU and PCI."""
    return " ".join(word for word in root.text("proc/cmdline").split() if "iommu" in word or word.startswith("pci="))
