"""Files as another process sees them: inside its root directory, and nothing but regular files."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_MAX_LINKS: Final = 40
"""Symlinks in one path, as in the kernel (MAXSYMLINKS, include/linux/namei.h)."""
_MAX_PARTS: Final = 256
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular(pid: int, path: str) -> int:
    """Descriptor of a regular file for reading; a relative path starts at the process's working directory.

    Symlinks are resolved here, one part at a time, so that an absolute link or '..' in the target's tree cannot lead
    out of its root. The file is looked at before it is opened: opening a FIFO can block, and opening a device can act.

    Raises OSError: what the kernel says (ENOENT, EACCES, ...), ELOOP for too many links, EINVAL for anything that is no
    regular file or no path.
    """
    if "\0" in path or path.count("/") > _MAX_PARTS:
        raise OSError(errno.EINVAL, "not a path")
    with_links = _Walk(pid)
    try:
        found = with_links.find(path)
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        # The magic link leads to the very inode that was checked.
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    finally:
        with_links.close()


class _Walk:
    """A walk from directory to directory; holds the root and the place it has come to."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
        self._here = os.dup(self._root)

    def close(self) -> None:
        os.close(self._here)
        os.close(self._root)

    def find(self, path: str) -> int:
        parts = self._start(path)
        links = 0
        while parts:
            part = parts.pop()
            if part == ".." and self._at_root():
                continue
            found = os.open(part, _LOOK, dir_fd=self._here)
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                self._move(found)
                continue
            try:
                goal = os.readlink("", dir_fd=found)
            finally:
                os.close(found)
            links += 1
            if links > _MAX_LINKS or len(parts) > _MAX_PARTS:
                raise OSError(errno.ELOOP, "too many symbolic links")
            parts += _split(goal)
            if goal.startswith("/"):
                self._move(os.dup(self._root))
        return self._here

    def _start(self, path: str) -> list[str]:
        if not path.startswith("/"):
            self._move(os.open(f"/proc/{self._pid}/cwd", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY))
        return _split(path)

    def _move(self, found: int) -> None:
        os.close(self._here)
        self._here = found

    def _at_root(self) -> bool:
        return os.path.samestat(os.fstat(self._here), os.fstat(self._root))


def _split(path: str) -> list[str]:
    """Parts of a path, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
