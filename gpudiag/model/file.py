"""Files that processes wait for, and the kernel's table of file locks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class FileFact(Struct, frozen=True, kw_only=True):
    """A file that some process waits for, as seen in that process's root.

    `openers` are the pids that have it open; `openers_complete` is true only if every process that could have it
    open was readable. `local` is false on a network file system, where an opener may sit on another host.
    """

    path: str
    exists: bool
    inode: int | None = None
    device: str | None = None
    modified_at: float | None = None
    size_bytes: int | None = None
    fs_type: str | None = None
    local: bool = True
    owner_uid: int | None = None
    openers: tuple[int, ...] = ()
    openers_complete: bool = False
    unread_uids: tuple[int, ...] = ()
    """Owners of the processes whose open files could not be read; a process that even root may not read is left out."""
    whole_host: bool = True
    """Whether every process that could reach the file is visible: false inside a container, for a file on a shared volume."""


class FileLock(Struct, frozen=True, kw_only=True):
    """One line of /proc/locks: a lock that is held, or (`blocked`) a request that waits for lock `id`."""

    id: int
    kind: Literal["flock", "posix", "ofd", "lease", "other"]
    mode: str
    pid: int
    """The process that took it; -1 for open-file-description locks, whose holder is whoever has the file open."""
    device: str
    inode: int
    blocked: bool
    path: str | None = None
    holders: tuple[int, ...] = ()
    """Pids that were seen to hold it: an open file is inherited by fork, so these may outlive the process that took it."""
