"""Why the kernel refuses to show a process, and what to type so that it does not."""

from __future__ import annotations

import os
import re

from gpudiag.collect import procfs
from gpudiag.collect.host import own_host
from gpudiag.model.reading import Unavailable
from gpudiag.model.snapshot import Host

_CONTAINER_ID = re.compile(r"[0-9a-f]{12}")


def gone(pid: int) -> Unavailable:
    return Unavailable(reason=f"process {pid} is gone", help="gpudiag attach")


def refused(pid: int, *, attach: bool, host: Host | None = None) -> Unavailable:
    """The reason and remedy for a read of `pid` that ended in EACCES or EPERM.

    `attach` is for sources that need ptrace-attach rights (memory, system calls, Python stacks), which Yama restricts.
    `host` says where the observer stands; by default that is read.
    """
    host = host or own_host()
    try:
        uid = procfs.read_status(pid).uid
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return gone(pid)
    if uid != host.observer_uid and host.observer_uid != 0:
        reason = f"process {pid} belongs to uid {uid}, gpudiag runs as {host.observer_uid}"
        return Unavailable(reason=reason, help=_as_root(pid, host))
    if not host.can_trace and host.observer_uid == 0:
        return Unavailable(reason="gpudiag runs as root but without CAP_SYS_PTRACE", help=_as_root(pid, host))
    if owner != uid:
        return Unavailable(reason=f"process {pid} is not dumpable (PR_SET_DUMPABLE 0)", help=_as_root(pid, host))
    if attach and host.yama_scope:
        return Unavailable(reason=f"kernel.yama.ptrace_scope is {host.yama_scope}", help=_yama(pid, host))
    reason = f"the kernel refuses access to process {pid} (user namespace, file capabilities or a security module)"
    return Unavailable(reason=reason, help=_as_root(pid, host))


def _as_root(pid: int, host: Host) -> str:
    """How to run as root with CAP_SYS_PTRACE without starting the server anew: that would end the hang."""
    if host.container in ("docker", "podman"):
        name = host.name if _CONTAINER_ID.fullmatch(host.name) else "CONTAINER"
        return f"on the host: {host.container} exec --privileged -u 0 {name} gpudiag attach {pid}"
    if host.container == "kubernetes":
        return (
            f"kubectl debug {host.name} -it --target=CONTAINER --profile=sysadmin --image=IMAGE -- gpudiag attach {pid}; "
            'for the next start, securityContext: {capabilities: {add: ["SYS_PTRACE"]}}'
        )
    if host.container is not None:
        return "on the host, which knows the process by another pid: sudo gpudiag attach"
    return f"sudo gpudiag attach {pid}"


def _yama(pid: int, host: Host) -> str:
    if host.yama_scope == 3:
        return "ptrace_scope 3 holds until the next boot: set kernel.yama.ptrace_scope=0 in /etc/sysctl.d and reboot"
    return f"echo 0 | sudo tee /proc/sys/kernel/yama/ptrace_scope, or sudo gpudiag attach {pid}"
