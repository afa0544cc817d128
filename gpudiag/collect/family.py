"""Which processes a look is about: trees below its roots, and whoever is at the other end of what they have open."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from gpudiag.collect import procfs
from gpudiag.model.file import FileLock
from gpudiag.model.process import FileDescriptor, Process
from gpudiag.model.reading import Ok

_SHARED = frozenset({"socket", "pipe"})


class Ends(NamedTuple):
    """A process outside the trees, with those of its descriptors that lead into them."""

    pid: int
    fds: tuple[FileDescriptor, ...]


def descendants(roots: Sequence[int]) -> list[int]:
    """The roots that exist and every process below them that /proc does not hide, parents before children."""
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    for pid in procfs.pids():
        try:
            stat = procfs.read_stat(pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        alive.add(pid)
        children.setdefault(stat.ppid, []).append(pid)
    found: dict[int, None] = {}
    todo = [pid for pid in roots if pid in alive]
    while todo:
        pid = todo.pop(0)
        if pid not in found and pid != os.getpid():
            found[pid] = None
            todo.extend(children.get(pid, ()))
    return list(found)


def shared_inodes(processes: Iterable[Process], peers: AbstractSet[int]) -> frozenset[int]:
    """Inodes of pipes and sockets that the processes have open, and of the sockets at the other ends."""
    own = {
        fd.inode
        for process in processes
        if isinstance(process.fds, Ok)
        for fd in process.fds.value
        if fd.kind in _SHARED and fd.inode is not None
    }
    return frozenset(own | peers)


def other_ends(inodes: AbstractSet[int], known: AbstractSet[int]) -> list[Ends]:
    """The processes not in `known` that have one of these pipes or sockets open, as far as they may be read."""
    targets = {f"{kind}:[{inode}]": (kind, inode) for inode in inodes for kind in _SHARED}
    others = (pid for pid in procfs.pids() if pid not in known)
    return [Ends(pid, fds) for pid in others if (fds := _leading_into(pid, targets))]


def _leading_into(pid: int, targets: Mapping[str, tuple[str, int]]) -> tuple[FileDescriptor, ...]:
    base = f"/proc/{pid}/fd/"
    try:
        names = os.listdir(base)
    except OSError:
        return ()
    found: list[FileDescriptor] = []
    for name in names:
        try:
            target = os.readlink(base + name)
            if target not in targets:
                continue
            mode = os.lstat(base + name).st_mode
        except OSError:
            continue
        kind, inode = targets[target]
        found.append(
            FileDescriptor(
                fd=int(name),
                kind="pipe" if kind == "pipe" else "socket",
                target=target,
                inode=inode,
                readable=bool(mode & 0o400),
                writable=bool(mode & 0o200),
            )
        )
    return tuple(found)


def lock_holders(locks: Iterable[FileLock], known: AbstractSet[int]) -> frozenset[int]:
    """Processes outside `known` that hold or want a lock which concerns the look."""
    return frozenset(lock.pid for lock in locks if lock.pid > 0 and lock.pid not in known)
