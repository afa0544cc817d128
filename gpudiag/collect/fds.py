"""Open file descriptors of a process, without touching the files themselves: a stat of one on a dead NFS would hang."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Literal

from gpudiag.collect import procfs
from gpudiag.collect.lock_table import parse_locks
from gpudiag.collect.mounts import Mount
from gpudiag.model.file import FileLock
from gpudiag.model.process import FileDescriptor

Kind = Literal["file", "pipe", "socket", "device", "anon", "other"]

_FDINFO_LIMIT = 1 << 16
_MOST_FDS = 65536
_MOST_WATCHED = 1024
_FILES_IN_DEV = ("/dev/shm/", "/dev/mqueue/", "/dev/hugepages/")  # noqa: S108 (read from a link, never opened)


def read_fds(pid: int, mounts: Mapping[int, Mount]) -> tuple[FileDescriptor, ...]:
    """Every descriptor of `pid`; those closed meanwhile are left out.

    Raises OSError if the process is gone, PermissionError without ptrace-read rights. `mounts` are those of `pid`.
    """
    base = f"/proc/{pid}/fd/"
    found: list[FileDescriptor] = []
    for number in sorted(int(name) for name in os.listdir(base))[:_MOST_FDS]:
        try:
            found.append(_read_fd(pid, base, number, mounts))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return tuple(found)


def _read_fd(pid: int, base: str, number: int, mounts: Mapping[int, Mount]) -> FileDescriptor:
    path = f"{base}{number}"
    target = procfs.text(os.readlink(path.encode()))
    mode = os.lstat(path).st_mode
    kind = kind_of(target)
    inode = _inode_in(target) if kind in ("pipe", "socket") else None
    device: str | None = None
    watches: tuple[int, ...] = ()
    locks: tuple[FileLock, ...] = ()
    if kind == "file":
        info = _fdinfo(pid, number)
        locks = _locks(info)
        inode, mount = _identity(info, path, mounts)
        if mount is not None and mount.local and stat.S_ISFIFO(os.stat(path).st_mode):
            kind = "pipe"
        elif mount is not None:
            device = mount.device
    elif target == "anon_inode:[eventpoll]":
        watches = _watched(_fdinfo(pid, number))
    return FileDescriptor(
        fd=number,
        kind=kind,
        target=target,
        inode=inode,
        device=device,
        readable=bool(mode & stat.S_IRUSR),
        writable=bool(mode & stat.S_IWUSR),
        watches=watches,
        locks=locks,
    )


def kind_of(target: str) -> Kind:
    """The kind of a descriptor by its link text, which shows a named pipe like a file."""
    if target.startswith(("anon_inode:", "/memfd:")):
        return "anon"
    if target.startswith("/dev/") and not target.startswith(_FILES_IN_DEV):
        return "device"
    if target.startswith(("/", "(unreachable)")):
        return "file"
    if target.startswith("pipe:["):
        return "pipe"
    if target.startswith("socket:["):
        return "socket"
    return "other"


def identity(pid: int | str, number: int, mounts: Mapping[int, Mount]) -> tuple[int | None, Mount | None]:
    """Inode and mount of an open file; with the device of the mount they are what the kernel's lock table prints.

    fdinfo gives `ino` since Linux 5.14. stat(2), the way out on older kernels, may show other numbers on overlayfs and
    hang on a network file system, where the inode is then None. Raises OSError once the descriptor is closed.
    """
    return _identity(_fdinfo(pid, number), f"/proc/{pid}/fd/{number}", mounts)


def _identity(info: bytes, path: str, mounts: Mapping[int, Mount]) -> tuple[int | None, Mount | None]:
    fields = _fields(info)
    mount_id, inode = fields.get(b"mnt_id"), fields.get(b"ino")
    mount = mounts.get(int(mount_id)) if mount_id is not None else None
    if inode is not None:
        return int(inode), mount
    if mount is not None and mount.local:
        return os.stat(path).st_ino, mount
    return None, mount


def _fdinfo(pid: int | str, number: int) -> bytes:
    return procfs.read_once(f"/proc/{pid}/fdinfo/{number}", _FDINFO_LIMIT)


def _fields(raw: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in raw.splitlines()[:8])
    return {name: value.strip() for name, _, value in pairs}


def _inode_in(target: str) -> int | None:
    digits = target.partition("[")[2].rstrip("]")
    return int(digits) if digits.isdigit() else None


def _locks(raw: bytes) -> tuple[FileLock, ...]:
    lines = (line.removeprefix(b"lock:") for line in raw.splitlines() if line.startswith(b"lock:"))
    return parse_locks(b"\n".join(lines))


def _watched(raw: bytes) -> tuple[int, ...]:
    lines = (line.split() for line in raw.splitlines() if line.startswith(b"tfd:"))
    return tuple(int(words[1]) for words in lines if len(words) > 1)[:_MOST_WATCHED]
