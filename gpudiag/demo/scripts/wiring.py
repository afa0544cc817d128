"""Who is connected to whom: a ring or a binary tree of stream sockets."""

from __future__ import annotations

import os
import socket

from .settings import Settings


def connected_pair(family: str, path: str) -> tuple[socket.socket, socket.socket]:
    """Two ends of one stream connection, over TCP on the loopback or over a Unix socket bound to `path`."""
    if family == "tcp":
        listener = socket.create_server(("127.0.0.1", 0))
        far = socket.create_connection(listener.getsockname())
    else:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(1)
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        far.connect(path)
    near, _ = listener.accept()
    listener.close()
    return near, far


def parent_of(rank: int) -> int:
    return (rank - 1) // 2


def children_of(rank: int, size: int) -> list[int]:
    return [child for child in (2 * rank + 1, 2 * rank + 2) if child < size]


def wire_ranks(settings: Settings) -> list[list[socket.socket]]:
    """The sockets of each rank: (from the one before, to the one after) in a ring, (parent, children ...) in a tree."""
    size = settings.ranks
    links: list[list[socket.socket]] = [[] for _ in range(size)]
    if settings.topology == "ring":
        pairs = [link_pair(settings, rank, (rank + 1) % size) for rank in range(size)]
        for rank in range(size):
            links[rank] = [pairs[rank - 1][1], pairs[rank][0]]
        return links
    for child in range(1, size):
        up, down = link_pair(settings, child, parent_of(child))
        links[child].insert(0, up)
        links[parent_of(child)].append(down)
    return links


def link_pair(settings: Settings, one: int, other: int) -> tuple[socket.socket, socket.socket]:
    return connected_pair(settings.family, os.path.join(settings.directory, f"link-{one}-{other}"))
