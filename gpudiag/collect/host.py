"""The machine, and where on it gpudiag stands: rights, pid namespace, container."""

from __future__ import annotations

import os
from functools import cache

from gpudiag.collect import procfs
from gpudiag.model.snapshot import Host

CAP_SYS_PTRACE = 1 << 19
"""include/uapi/linux/capability.h"""

_CGROUP_WORDS = (
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("docker", "docker"),
    ("containerd", "containerd"),
    ("lxc", "lxc"),
)


@cache
def own_host() -> Host:
    """Facts about this host that hold for as long as gpudiag runs."""
    status = procfs.read_status(os.getpid())
    uname = os.uname()
    return Host(
        name=uname.nodename,
        kernel=uname.release,
        boot_id=_line("/proc/sys/kernel/random/boot_id") or "",
        cpu_count=len(os.sched_getaffinity(0)),
        clock_ticks=os.sysconf("SC_CLK_TCK"),
        observer_uid=status.effective_uid,
        pid_namespace=procfs.namespace_inode("self", "pid"),
        can_trace=bool(status.cap_effective & CAP_SYS_PTRACE),
        yama_scope=_number(_line("/proc/sys/kernel/yama/ptrace_scope")),
        container=_container(),
    )


def _line(path: str) -> str | None:
    try:
        return procfs.text(procfs.read_once(path, 256)).strip()
    except OSError:
        return None


def _number(line: str | None) -> int | None:
    return int(line) if line is not None and line.isdigit() else None


def _container() -> str | None:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    group = procfs.cgroup("self") or ""
    return next((kind for word, kind in _CGROUP_WORDS if word in group), None)
