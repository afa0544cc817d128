"""Who listens on which port, and which network and InfiniBand devices there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpudiag.doctor.reads import Root
from gpudiag.model.facts import Listener

_LISTEN: Final = "0A"
"""TCP_LISTEN in /proc/net/tcp: include/net/tcp_states.h."""


def listeners(root: Root) -> tuple[Listener, ...]:
    """Every listening TCP socket of this network namespace, with its owner where that is visible."""
    sockets = list(_listening(root))
    owners = _owners(root, {inode for _, _, inode in sockets})
    found = []
    for port, address, inode in sockets:
        pid = owners.get(inode)
        found.append(Listener(port=port, address=address, pid=pid, name=_name(root, pid) if pid else ""))
    return tuple(found)


def _listening(root: Root) -> Iterator[tuple[int, str, int]]:
    for table in ("proc/net/tcp", "proc/net/tcp6"):
        try:
            text = root.text(table, 16 << 20)
        except FileNotFoundError:
            continue
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:
                address, _, port = fields[1].rpartition(":")
                yield int(port, 16), _address(address), int(fields[9])


def _address(text: str) -> str:
    """The kernel writes each 32-bit word of an address in the byte order of the host."""
    data = b"".join(bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8))
    if len(data) == 4:
        return ".".join(map(str, data))
    return "[::]" if not any(data) else f"[{':'.join(data[i : i + 2].hex() for i in range(0, 16, 2))}]"


def _owners(root: Root, inodes: set[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for pid in sorted((p for p in os.listdir(root.at("proc")) if p.isdigit()), key=int):
        if not inodes - found.keys():
            break
        directory = root.at(f"proc/{pid}/fd")
        try:
            names = os.listdir(directory)
        except OSError:
            # Gone meanwhile, or of another user: the listener then has no owner that we can name.
            continue
        for name in names:
            inode = _socket(directory / name)
            if inode in inodes:
                found.setdefault(inode, int(pid))
    return found


def _socket(path: Path) -> int:
    try:
        target = os.readlink(path)
    except OSError:
        return -1
    return int(target[8:-1]) if target.startswith("socket:[") else -1


def _name(root: Root, pid: int) -> str:
    try:
        return root.text(f"proc/{pid}/comm", 256)
    except OSError:
        return ""


def interfaces(root: Root) -> tuple[str, ...]:
    return tuple(sorted(os.listdir(root.at("sys/class/net"))))


def infiniband(root: Root) -> tuple[str, ...]:
    """Names of the RDMA devices; empty where the kernel has no such class."""
    try:
        return tuple(sorted(os.listdir(root.at("sys/class/infiniband"))))
    except FileNotFoundError:
        return ()
