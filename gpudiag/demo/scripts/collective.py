"""Broadcast and sum over the ranks, through stream sockets."""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from array import array

HEADER = struct.Struct("!I")


def put_message(link: socket.socket, payload: bytes) -> None:
    link.sendall(HEADER.pack(len(payload)) + payload)


def take_exactly(link: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = link.recv(count - len(parts))
        if not part:
            raise ConnectionError("the other rank closed the connection")
        parts += part
    return bytes(parts)


def take_message(link: socket.socket) -> bytes:
    (length,) = HEADER.unpack(take_exactly(link, HEADER.size))
    return take_exactly(link, length)


def take_numbers(link: socket.socket) -> array[float]:
    return array("d", take_message(link))


class Group(ABC):
    """The ranks of one server. Every rank calls the same operations in the same order."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    @abstractmethod
    def broadcast(self, payload: bytes) -> bytes:
        """What rank 0 passes, on every rank."""

    @abstractmethod
    def all_reduce(self, values: array[float]) -> array[float]:
        """The sum over the ranks, on every rank."""


class Ring(Group):
    """Every rank sends to the next one and takes from the one before."""

    def __init__(self, rank: int, size: int, links: list[socket.socket]) -> None:
        super().__init__(rank, size)
        self.previous, self.following = links

    def broadcast(self, payload: bytes) -> bytes:
        if self.rank:
            payload = take_message(self.previous)
        if self.rank + 1 < self.size:
            put_message(self.following, payload)
        return payload

    def all_reduce(self, values: array[float]) -> array[float]:
        """Reduce-scatter, then all-gather."""
        chunks = [values[part :: self.size] for part in range(self.size)]
        for step in range(self.size - 1):
            gone, come = (self.rank - step) % self.size, (self.rank - step - 1) % self.size
            put_message(self.following, chunks[gone].tobytes())
            chunks[come] = array("d", map(sum, zip(chunks[come], take_numbers(self.previous), strict=True)))
        for step in range(self.size - 1):
            gone, come = (self.rank + 1 - step) % self.size, (self.rank - step) % self.size
            put_message(self.following, chunks[gone].tobytes())
            chunks[come] = take_numbers(self.previous)
        total = array("d", values)
        for part, chunk in enumerate(chunks):
            total[part :: self.size] = chunk
        return total


class Tree(Group):
    """Rank 0 is the root of a binary tree; a rank talks to its parent and its children."""

    def __init__(self, rank: int, size: int, links: list[socket.socket]) -> None:
        super().__init__(rank, size)
        self.upward = links[0] if rank else None
        self.downward = links[1:] if rank else links

    def broadcast(self, payload: bytes) -> bytes:
        if self.upward is not None:
            payload = take_message(self.upward)
        for link in self.downward:
            put_message(link, payload)
        return payload

    def all_reduce(self, values: array[float]) -> array[float]:
        """Sums go up to rank 0, the total comes down again."""
        for link in self.downward:
            values = array("d", map(sum, zip(values, take_numbers(link), strict=True)))
        if self.upward is not None:
            put_message(self.upward, values.tobytes())
        return array("d", self.broadcast(values.tobytes()))


def join_group(topology: str, rank: int, size: int, links: list[socket.socket]) -> Group:
    return Ring(rank, size, links) if topology == "ring" else Tree(rank, size, links)
