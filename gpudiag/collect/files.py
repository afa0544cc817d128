"""Facts about files that a process waits for: do they exist, where do they lie, who has them open.

Nothing is opened for reading, so no FIFO blocks and no device wakes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpudiag.collect import procfs
from gpudiag.collect.fds import identity
from gpudiag.collect.mounts import Mount, read_mounts
from gpudiag.collect.rooted import Root
from gpudiag.model.file import FileFact

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO, include/linux/proc_ns.h: the inode of the machine's own pid namespace."""
_PRIVATE_TO_CONTAINER = frozenset({"overlay", "tmpfs", "ramfs"})


class _Identity(NamedTuple):
    """What the kernel calls a file: the device of its file system and its inode number there."""

    device: str
    inode: int


class _Opened(NamedTuple):
    """Who has which file open, and whether every process could be asked."""

    by_file: Mapping[_Identity, tuple[int, ...]]
    complete: bool
    unread_uids: tuple[int, ...] = ()


def file_facts(pid: int, paths: Iterable[str]) -> tuple[FileFact, ...]:
    """One fact for each path, looked up in the root of `pid` and never followed out of it.

    A path that cannot be looked up (the root may not be entered, a directory may not be searched) gives no fact.
    """
    try:
        with Root(pid) as root:
            mounts = read_mounts(pid)
            seen = {path: _look_up(root, path, mounts) for path in dict.fromkeys(paths)}
    except OSError:
        return ()
    wanted = {fact.identity for fact in seen.values() if fact is not None and fact.identity is not None}
    opened = _openers(wanted) if wanted else _Opened({}, False)
    return tuple(_fact(path, found, opened) for path, found in seen.items() if found is not None)


class _Found(NamedTuple):
    status: os.stat_result | None
    identity: _Identity | None
    mount: Mount | None


def _look_up(root: Root, path: str, mounts: Mapping[int, Mount]) -> _Found | None:
    try:
        fd = root.open_path(path)
    except (FileNotFoundError, NotADirectoryError):
        return _Found(None, None, _mount_above(root, path, mounts))
    except OSError:
        return None
    try:
        inode, mount = identity("self", fd, mounts)
        known = _Identity(mount.device, inode) if mount is not None and inode is not None else None
        return _Found(os.fstat(fd), known, mount)
    finally:
        os.close(fd)


def _mount_above(root: Root, path: str, mounts: Mapping[int, Mount]) -> Mount | None:
    """The mount of the nearest directory above a path that does not exist."""
    while (parent := os.path.dirname(path)) != path:
        path = parent
        try:
            fd = root.open_path(path)
        except OSError:
            continue
        try:
            return identity("self", fd, mounts)[1]
        finally:
            os.close(fd)
    return None


def _fact(path: str, found: _Found, opened: _Opened) -> FileFact:
    mount = found.mount
    fs_type = mount.fs_type if mount is not None else None
    local = mount is not None and mount.local
    if found.status is None:
        return FileFact(path=path, exists=False, fs_type=fs_type, local=local)
    return FileFact(
        path=path,
        exists=True,
        inode=found.identity.inode if found.identity else found.status.st_ino,
        device=found.identity.device if found.identity else None,
        modified_at=found.status.st_mtime,
        size_bytes=found.status.st_size if stat.S_ISREG(found.status.st_mode) else None,
        fs_type=fs_type,
        local=local,
        openers=opened.by_file.get(found.identity, ()) if found.identity else (),
        owner_uid=found.status.st_uid,
        openers_complete=found.identity is not None and opened.complete and _all_visible(fs_type),
        unread_uids=opened.unread_uids,
        whole_host=_all_visible(fs_type),
    )


def _all_visible(fs_type: str | None) -> bool:
    """Whether /proc shows every process that could have the file open: processes outside a container share its volumes."""
    own = procfs.namespace_inode("self", "pid")
    return own == _INITIAL_PID_NAMESPACE or fs_type in _PRIVATE_TO_CONTAINER


def _openers(wanted: set[_Identity]) -> _Opened:
    found: dict[_Identity, list[int]] = {}
    mounts: dict[int | None, Mapping[int, Mount]] = {}
    complete = not _hides_processes()
    unread: set[int] = set()
    for pid in procfs.pids():
        if pid == os.getpid():
            continue
        try:
            for known in _open_files(pid, mounts) & wanted:
                found.setdefault(known, []).append(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            if _has_no_files(pid):
                continue
            complete = False
            if os.geteuid() != 0:
                unread.add(_owner(pid))
    return _Opened({known: tuple(sorted(pids)) for known, pids in found.items()}, complete, tuple(sorted(unread)))


def _owner(pid: int) -> int:
    """The uid of a process, -1 if it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def _open_files(pid: int, mounts: dict[int | None, Mapping[int, Mount]]) -> set[_Identity]:
    """The regular files that a process has open. Raises OSError where that cannot be told in full."""
    base = f"/proc/{pid}/fd/"
    numbers = os.listdir(base)
    if not numbers:
        return set()
    namespace = procfs.namespace_inode(pid, "mnt")
    if namespace not in mounts:
        mounts[namespace] = read_mounts(pid)
    found: set[_Identity] = set()
    for number in numbers:
        try:
            if not os.readlink(base + number).startswith(("/", "(unreachable)")):
                continue
            inode, mount = identity(pid, int(number), mounts[namespace])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if inode is not None and mount is not None:
            found.add(_Identity(mount.device, inode))
    return found


def _has_no_files(pid: int) -> bool:
    """Kernel threads and zombies have nothing open, readable or not; neither has a process that has just ended."""
    try:
        stat_line = procfs.read_stat(pid)
    except OSError:
        return True
    return stat_line.kernel_thread or stat_line.state == "Z"


def _hides_processes() -> bool:
    """Whether /proc is mounted so that other users' processes do not even show (hidepid=2)."""
    if os.geteuid() == 0:
        return False
    points = [m for m in read_mounts("self").values() if m.point == "/proc"]
    return any("hidepid=" in m.options and "hidepid=0" not in m.options and "hidepid=off" not in m.options for m in points)
