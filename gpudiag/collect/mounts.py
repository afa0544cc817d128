"""Mounts of a process: which device a file lies on, its file system, and whether another host can have it open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from gpudiag.collect import procfs

_LIMIT = 1 << 23
_NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "glusterfs",
        "9p",
        "afs",
        "ocfs2",
        "gfs2",
        "pvfs2",
        "orangefs",
        "wekafs",
        "daos",
        "virtiofs",
        "coda",
        "juicefs",
        "panfs",
    }
)


class Mount(NamedTuple):
    """One line of mountinfo. `device` is 'major:minor' in hexadecimal as /proc/locks prints it."""

    id: int
    device: str
    point: str
    fs_type: str
    options: str

    @property
    def local(self) -> bool:
        """Whether only this host can have files of the mount open. FUSE says nothing, so it counts as remote."""
        return self.fs_type not in _NETWORK and not self.fs_type.startswith("fuse")


def read_mounts(pid: int | str) -> Mapping[int, Mount]:
    """The mounts in the mount namespace and root of `pid`, by mount id. Raises OSError."""
    return _known(procfs.read_all(f"/proc/{pid}/mountinfo", _LIMIT))


@lru_cache(maxsize=4)
def _known(raw: bytes) -> Mapping[int, Mount]:
    """All processes of a server show the same text."""
    return MappingProxyType(parse_mountinfo(raw))


def parse_mountinfo(raw: bytes) -> dict[int, Mount]:
    """Parse mountinfo (proc(5)): id parent major:minor root point options optional* - type source super-options."""
    found: dict[int, Mount] = {}
    for line in raw.split(b"\n"):
        left, dash, right = line.partition(b" - ")
        fields, tail = left.split(), right.split()
        if not dash or len(fields) < 6 or len(tail) < 2:
            continue
        major, _, minor = fields[2].partition(b":")
        if not (fields[0].isdigit() and major.isdigit() and minor.isdigit()):
            continue
        mount = Mount(
            id=int(fields[0]),
            device=device_name(int(major), int(minor)),
            point=procfs.text(fields[4]),
            fs_type=procfs.text(tail[0]),
            options=procfs.text(tail[2]) if len(tail) > 2 else "",
        )
        found[mount.id] = mount
    return found


def device_name(major: int, minor: int) -> str:
    """A device as /proc/locks prints it (fs/locks.c: '%02x:%02x')."""
    return f"{major:02x}:{minor:02x}"
