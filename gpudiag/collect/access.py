"""Why the kernel refuses to show a process, and what to type so that it does not."""

from __future__ import annotations

import os
import re

from gpudiag.collect import procfs
from gpudiag.collect.host import own_host
from gpudiag.collect.mounts import read_mounts
from gpudiag.errors import NotInspectableError
from gpudiag.model.reading import Unavailable
from gpudiag.model.snapshot import Host

_CONTAINER_ID = re.compile(r"[0-9a-f]{12}")
_HIDES_NOTHING = ("hidepid=0", "hidepid=off")


def gone(pid: int) -> Unavailable:
    return Unavailable(reason=f"process {pid} is gone", help="gpudiag attach")


def absent(pid: int) -> Unavailable:
    """Why a scan does not show `pid`, as far as that can be told."""
    try:
        if procfs.read_stat(pid).kernel_thread:
            return Unavailable(reason=f"process {pid} is a thread of the kernel, not of a server", help="gpudiag attach")
    except OSError:
        hiding = _hiding()
        if hiding is not None:
            reason = f"there is no process {pid} here, or /proc hides it: it is mounted with {hiding}"
            return Unavailable(reason=reason, help=f"sudo gpudiag attach {pid}")
    return Unavailable(
        reason=f"there is no process {pid} here",
        help="gpudiag attach\nin a container, pids differ from those of the host: look from where the pid was seen",
    )


def _hiding() -> str | None:
    """The hidepid option of /proc, None if it hides nothing from us (proc(5))."""
    try:
        mounts = read_mounts("self").values()
    except OSError:
        return None
    # Of mounts on top of each other the last one is seen.
    seen = [m.options.split(",") for m in mounts if m.point == "/proc" and m.fs_type == "proc"][-1:]
    return next((o for options in seen for o in options if o.startswith("hidepid=") and o not in _HIDES_NOTHING), None)


def require_own_proc() -> None:
    """Raise NotInspectableError unless /proc shows the pid namespace that gpudiag is in.

    Else a pid read from /proc would be another process to ptrace, kill and the system calls that py-spy makes.
    """
    try:
        seen = os.readlink("/proc/self")
    except OSError:
        seen = "nothing"
    if seen != str(os.getpid()):
        raise NotInspectableError(
            f"/proc is of another pid namespace: it shows gpudiag as {seen}, which is process {os.getpid()}",
            help="mount -t proc proc /proc, in a mount namespace of its own (unshare --mount-proc); or run gpudiag on the host",
        )


def refused(pid: int, *, attach: bool, host: Host | None = None) -> Unavailable:
    """The reason and remedy for a read of `pid` that ended in EACCES or EPERM.

    `attach` is for sources that need ptrace-attach rights (memory, system calls, Python stacks), which Yama restricts.
    `host` says where the observer stands; by default that is read.
    """
    host = host or own_host()
    try:
        status = procfs.read_status(pid)
        # Of a process that is not dumpable, root owns the files, though not the directory (task_dump_owner, fs/proc/base.c).
        owner = os.stat(f"/proc/{pid}/environ").st_uid
    except OSError:
        return gone(pid)
    uid = status.uid
    if uid != host.observer_uid and host.observer_uid != 0:
        reason = f"process {pid} belongs to uid {uid}, gpudiag runs as {host.observer_uid}"
        return Unavailable(reason=reason, help=_as_root(pid, host))
    if not host.can_trace and host.observer_uid == 0:
        return Unavailable(reason="gpudiag runs as root but without CAP_SYS_PTRACE", help=_as_root(pid, host))
    if owner != status.effective_uid:
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
