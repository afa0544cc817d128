"""Errors that the NVIDIA driver reported to the kernel log."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from gpudiag.doctor.reads import Root
from gpudiag.model.facts import KernelLog, Xid

_XID: Final = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)[^)]*\): (\d+)(.*)")
_RECORD_BYTES: Final = 8192
"""Longest record of /dev/kmsg: CONSOLE_EXT_LOG_MAX, kernel/printk/printk.c."""
_MAX_RECORDS: Final = 200_000
_MAX_XIDS: Final = 200


def kernel_log(root: Root) -> KernelLog:
    """Xid errors since boot, from /dev/kmsg. Raises OSError if it may not be read."""
    fd = os.open(root.at("dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return KernelLog(xids=_xids(fd))
    finally:
        os.close(fd)


def _xids(fd: int) -> tuple[Xid, ...]:
    found: list[Xid] = []
    for _ in range(_MAX_RECORDS):
        try:
            record = os.read(fd, _RECORD_BYTES)
        except BlockingIOError:
            break
        except OSError as error:
            # The kernel overwrote what was to be read next; reading goes on behind it.
            if error.errno == errno.EPIPE:
                continue
            raise
        if not record:
            break
        found += xids_in(record.decode("utf-8", "replace"))
    return tuple(found[-_MAX_XIDS:])


def xids_in(text: str) -> list[Xid]:
    """The Xid lines of a piece of kernel log, with the address in sysfs's form ('0000:65:00.0')."""
    return [Xid(number=int(m[2]), bus_id=_address(m[1]), line=m[0][:300]) for m in _XID.finditer(text)]


def _address(text: str) -> str:
    """The driver writes '0000:65:00' and leaves out the function."""
    text = text.lower()
    return text if "." in text else f"{text}.0"
