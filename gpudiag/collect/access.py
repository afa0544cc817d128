"""Why the kernel refuses to show a process, and what to type so that it does not."""

from __future__ import annotations

import os

from gpudiag.collect import procfs
from gpudiag.collect.host import own_host
from gpudiag.model.reading import Unavailable
from gpudiag.model.snapshot import Host

_CONTAINER_COMMANDS = {
    "kubernetes": 'add to the container: securityContext: {capabilities: {add: ["SYS_PTRACE"]}}',
    "docker": "docker run --cap-add=SYS_PTRACE ...",
    "podman": "podman run --cap-add=SYS_PTRACE ...",
}


def gone(pid: int) -> Unavailable:
    return Unavailable(reason=f"process {pid} is gone", help="gpudiag attach")


def refused(pid: int, *, attach: bool) -> Unavailable:
    """The reason and remedy for a read of `pid` that ended in EACCES or EPERM.

    `attach` is for sources that need ptrace-attach rights (memory, system calls, Python stacks), which Yama restricts.
    """
    host = own_host()
    try:
        uid = procfs.read_status(pid).uid
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return gone(pid)
    if not host.can_trace and host.observer_uid == 0:
        return Unavailable(reason="gpudiag runs as root but without CAP_SYS_PTRACE", help=_grant(pid, host))
    if uid != host.observer_uid:
        reason = f"process {pid} belongs to uid {uid}, gpudiag runs as {host.observer_uid}"
        return Unavailable(reason=reason, help=_sudo(pid, host))
    if owner != uid:
        return Unavailable(reason=f"process {pid} is not dumpable (PR_SET_DUMPABLE 0)", help=_sudo(pid, host))
    if attach and host.yama_scope:
        return Unavailable(reason=f"kernel.yama.ptrace_scope is {host.yama_scope}", help=_yama(host))
    reason = f"the kernel refuses access to process {pid} (user namespace or security module)"
    return Unavailable(reason=reason, help=_grant(pid, host))


def _sudo(pid: int, host: Host) -> str:
    if host.container:
        return f"as root in the container: gpudiag attach {pid}; or {_grant(pid, host)}"
    return f"sudo gpudiag attach {pid}"


def _grant(pid: int, host: Host) -> str:
    return _CONTAINER_COMMANDS.get(host.container or "", f"sudo gpudiag attach {pid}")


def _yama(host: Host) -> str:
    if host.yama_scope == 3:
        return "ptrace_scope 3 cannot be lifted: reboot with kernel.yama.ptrace_scope=0"
    return "echo 0 | sudo tee /proc/sys/kernel/yama/ptrace_scope"
