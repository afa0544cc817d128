"""Files as another process names them, and nothing but regular ones."""

from __future__ import annotations

import errno
import os
import posixpath
import stat

from gpudiag.collect.rooted import Root


def open_regular(pid: int, path: str, suffixes: tuple[str, ...]) -> int:
    """Descriptor for reading a regular file of the process `pid`, inside its root; relative paths start where it works.

    The file is looked at before it is opened: opening a FIFO can block, and opening a device can act. Its name after all
    links has to end in one of `suffixes`: reading some files of /proc and /sys acts too (/proc/kmsg gives each message once).

    Raises OSError: what the kernel says (ENOENT, EACCES, ...), or EINVAL for anything that is no regular file or no path.
    """
    absolute = path if path.startswith("/") else posixpath.join(working_directory(pid), path)
    with Root(pid) as root:
        try:
            found = root.open_path(absolute)
        except UnicodeEncodeError:
            raise OSError(errno.EINVAL, "not a path") from None
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        # The magic link leads to the very inode that was checked.
        itself = f"/proc/self/fd/{found}"
        if not os.readlink(itself).endswith(suffixes):
            raise OSError(errno.EINVAL, "a link to another kind of file")
        return os.open(itself, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    finally:
        os.close(found)


def working_directory(pid: int) -> str:
    """Working directory of a process, as a path in its own root. Raises OSError."""
    directory, root = os.readlink(f"/proc/{pid}/cwd"), os.readlink(f"/proc/{pid}/root")
    inside = directory.startswith(f"{root}/") and root != "/"
    return directory[len(root) :] if inside else directory
