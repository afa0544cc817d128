"""Memory of another process through /proc/PID/mem: no ptrace stop, no signal, nothing written."""

from __future__ import annotations

import errno
import os
from types import TracebackType
from typing import Final, Self

READ_LIMIT: Final = 1 << 20
"""Most bytes that one read may ask for. Sizes come from the target, so a corrupt one must not cost us our memory."""

_NEVER_MAPPED: Final = 8
"""An address in the first page, which nothing may map (vm.mmap_min_addr)."""
_LAST_ADDRESS: Final = (1 << 63) - 1


class TargetMemory:
    """Read-only view of the address space that `pid` had when this object was made.

    A process that calls exec afterwards, or a new process that gets the same pid, is not read by mistake: the kernel
    binds the open file to the address space, and reads of one that is gone fail with ESRCH.

    Raises OSError: from the constructor if the process is gone (ENOENT, ESRCH) or may not be read (EACCES, EPERM); from
    reads if the range is not mapped (EIO, EFAULT), the size is negative or above READ_LIMIT (EINVAL), the address space
    is gone (ESRCH), or the object is closed (EBADF).
    """

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid
        self._fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; harmless when already closed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes at `address`."""
        if not 0 <= size <= READ_LIMIT:
            raise OSError(errno.EINVAL, f"a read of {size} bytes is above the limit of {READ_LIMIT}")
        if not 0 < address <= _LAST_ADDRESS - size:
            raise OSError(errno.EFAULT, f"not an address of a process: {address:#x}")
        data = os.pread(self._fd, size, address)
        if len(data) == size:
            return data
        if not data and size:
            raise OSError(errno.ESRCH, f"the address space of process {self.pid} is gone")
        raise OSError(errno.EFAULT, f"only {len(data)} of {size} bytes are mapped at {address:#x}")

    def pointer(self, address: int) -> int:
        """The 64-bit little-endian word at `address`."""
        return int.from_bytes(self.read(address, 8), "little")

    def require_alive(self) -> None:
        """Raise OSError with ESRCH if the address space is gone, so that a look that found nothing can say why."""
        try:
            self.read(_NEVER_MAPPED, 1)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EFAULT):
                raise
