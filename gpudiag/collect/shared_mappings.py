"""Names for memory that several processes map: the file behind an address and the place in it."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.collect import procfs

_LIMIT: Final = 1 << 24
_MAPPING: Final = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ...s ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+)")
"""A line of /proc/PID/maps (proc_pid_maps(5)) whose memory is shared: range, offset in bytes, device, inode."""


class SharedMappings:
    """The shared memory mappings of a process, read when first asked for."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._mappings: list[tuple[int, int, int, str]] | None = None

    def name(self, address: int) -> str | None:
        """'device:inode+offset' of an address, the same in every process that maps the file; None if it is not shared.

        Raises OSError if the target is gone.
        """
        if self._mappings is None:
            self._mappings = list(_shared(procfs.read_all(f"/proc/{self._pid}/maps", _LIMIT)))
        for start, end, offset, file in self._mappings:
            if start <= address < end:
                return f"{file}+{address - start + offset:#x}"
        return None


def _shared(maps: bytes) -> list[tuple[int, int, int, str]]:
    return [
        (int(m[1], 16), int(m[2], 16), int(m[3], 16), f"{m[4].decode()}:{int(m[5])}")
        for line in maps.split(b"\n")
        if (m := _MAPPING.match(line))
    ]
