"""Paths as another process sees them, never followed out of its root."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from typing import Self

_OPENAT2 = 437
"""Same number on every machine (include/uapi/asm-generic/unistd.h, Linux 5.6)."""
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_IN_ROOT = 0x10
_MOST_LINKS = 40


class _OpenHow(ctypes.Structure):
    """struct open_how, include/uapi/linux/openat2.h."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Root:
    """The root directory of a process.

    `open_path` gives an O_PATH descriptor: no file is opened for reading, so no FIFO blocks and no device wakes.
    Raises OSError if the process is gone or its root may not be entered.
    """

    def __init__(self, pid: int) -> None:
        self._fd = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def open_path(self, path: str, *, follow: bool = True) -> int:
        """An O_PATH descriptor of an absolute path; with `follow` the last symbolic link is followed, inside the root.

        Raises OSError, FileNotFoundError if there is no such file.
        """
        flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        how = _OpenHow(flags, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        raw = os.fsencode(path)
        if b"\0" in raw:
            raise FileNotFoundError(errno.ENOENT, "a path with a NUL", path)
        fd = self._libc.syscall(_OPENAT2, self._fd, ctypes.c_char_p(raw), ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EPERM):
            return walk(self._fd, path, follow=follow)
        raise OSError(code, os.strerror(code), path)

    def existing(self, paths: Iterable[str]) -> set[str]:
        """Those of `paths` that exist, a dangling last link included."""
        found: set[str] = set()
        for path in paths:
            try:
                os.close(self.open_path(path, follow=False))
            except (OSError, UnicodeEncodeError):
                continue
            found.add(path)
        return found


def walk(root: int, path: str, *, follow: bool) -> int:
    """What openat2 does, by hand, for kernels before 5.6 and filters that refuse it."""
    todo = [part for part in path.split("/") if part not in ("", ".")]
    trail = [os.dup(root)]
    links = 0
    try:
        while todo:
            part = todo.pop(0)
            if part == "..":
                if len(trail) > 1:
                    os.close(trail.pop())
                continue
            fd = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=trail[-1])
            trail.append(fd)
            target = _link_target(fd) if todo or follow else None
            if target is None:
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            keep = 1 if target.startswith("/") else len(trail) - 1
            for old in trail[keep:]:
                os.close(old)
            del trail[keep:]
            todo = [p for p in target.split("/") if p not in ("", ".")] + todo
        return os.dup(trail[-1])
    finally:
        for fd in trail:
            os.close(fd)


def _link_target(fd: int) -> str | None:
    try:
        return os.readlink("", dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise
