"""Errors of the NVIDIA driver in the kernel log (Xid), and GPUs that fell off the bus."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable
from typing import Final, TypeAlias

from gpudiag.model.gpu import XidEvent
from gpudiag.model.reading import Failed, Ok, Unavailable

XidReading: TypeAlias = Ok[tuple[XidEvent, ...]] | Unavailable | Failed

_MOST_RECORDS: Final = 200_000
_SHORT: Final = re.compile(rb"[0-9]{1,18}")
"""Microseconds since boot."""
_MOST_EVENTS: Final = 200
_RECORD_BYTES: Final = 8192
_XID: Final = re.compile(
    rb"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{4,32})\): (\d{1,4})(?:, (?:pid='?(\d{1,10}|<unknown>)'?))?(?:, name=([^,]{1,64}))?"
)
_LOST: Final = re.compile(rb"NVRM: GPU at PCI:([0-9A-Fa-f:.]{4,32}).{0,40}has fallen off the bus")
_FALLEN_OFF: Final = 79


def read_xids() -> XidReading:
    """Every Xid that the kernel still remembers, oldest first. Needs CAP_SYSLOG, or kernel.dmesg_restrict=0."""
    at, started = time.time(), time.perf_counter()
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return Unavailable(reason="the kernel log may not be read (kernel.dmesg_restrict)", help="sudo dmesg | grep -i xid")
    except OSError as error:
        return Unavailable(reason=f"no kernel log here: {error.strerror}", help="dmesg | grep -i xid, on the host")
    try:
        events = parse_records(_records(fd))
    except PermissionError:
        return Unavailable(reason="the kernel log may not be read (kernel.dmesg_restrict)", help="sudo dmesg | grep -i xid")
    except OSError as error:
        return Failed(error=f"/dev/kmsg: {error.strerror}")
    finally:
        os.close(fd)
    return Ok(value=events, at=at, took_s=time.perf_counter() - started)


def _records(fd: int) -> Iterable[bytes]:
    """Records of /dev/kmsg until it would block. One that was overwritten meanwhile is skipped (EPIPE)."""
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(fd, _RECORD_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EPIPE:
                continue
            raise
        if not record:
            return
        yield record


def parse_records(records: Iterable[bytes]) -> tuple[XidEvent, ...]:
    """Events in kmsg records 'priority,sequence,microseconds,flags;text', the last 200. The text is cut at 300 bytes."""
    events: list[XidEvent] = []
    for record in records:
        if b"NVRM" not in record:
            continue
        head, _, text = record.partition(b";")
        fields = head.split(b",")
        at_s = int(fields[2]) / 1e6 if len(fields) > 2 and _SHORT.fullmatch(fields[2]) else None
        line = text.split(b"\n", 1)[0]
        event = _event(line, at_s)
        if event is not None:
            events = [*events, event][-_MOST_EVENTS:]
    return tuple(events)


def _event(line: bytes, at_s: float | None) -> XidEvent | None:
    shown = re.sub(r"[^\x20-\x7e]", "?", line[:300].decode("utf-8", "replace"))
    if match := _XID.search(line):
        pci, number, pid, name = match.groups()
        return XidEvent(
            number=int(number),
            pci=_address(pci),
            text=shown,
            at_s=at_s,
            pid=int(pid) if pid and pid.isdigit() else None,
            process=name.decode("utf-8", "replace") if name and name != b"<unknown>" else None,
        )
    if match := _LOST.search(line):
        return XidEvent(number=_FALLEN_OFF, pci=_address(match.group(1)), text=shown, at_s=at_s)
    return None


def _address(raw: bytes) -> str:
    """'0000:1b:00' in the log is function 0."""
    text = raw.decode().lower().rstrip(".:")
    return text if "." in text else f"{text}.0"
