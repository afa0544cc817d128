"""The kernel's own messages since a server was started, as dmesg prints them."""

from __future__ import annotations

import os
import time
from typing import Final

_RECORD_BYTES: Final = 8192
"""Longest record of /dev/kmsg: CONSOLE_EXT_LOG_MAX, kernel/printk/printk.c."""
_MOST_RECORDS: Final = 200_000
_MOST_CHARS: Final = 1 << 18


def kernel_messages(since: float) -> str:
    """Lines '[seconds after boot] text' from Unix time `since` on; empty where the log may not be read or says nothing."""
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    lines: list[str] = []
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(handle, _RECORD_BYTES)
            except BrokenPipeError:
                # The kernel overwrote what was to be read next; reading goes on behind it.
                continue
            if not record:
                break
            line = _line(record, since - boot)
            if line:
                lines.append(line)
    except OSError:
        # Nothing more to read (EAGAIN), or a container that shows the device and no messages (EPERM).
        pass
    finally:
        os.close(handle)
    return "".join(lines)[-_MOST_CHARS:]


def _line(record: bytes, after_s: float) -> str:
    """A record 'priority,sequence,microseconds,flags;text' of the kernel itself (facility 0), if it is young enough."""
    head, _, body = record.partition(b";")
    fields = head.split(b",")
    if len(fields) < 3 or not fields[0].isdigit() or not fields[2].isdigit() or int(fields[0]) >> 3:
        return ""
    at_s = int(fields[2]) / 1e6
    text = body.split(b"\n", 1)[0].decode("utf-8", "replace")
    return f"[{at_s:12.6f}] {text}\n" if at_s >= after_s else ""
