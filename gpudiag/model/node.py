"""Names of the things that wait and are waited for.

A node is a string so that it reads the same in a report, a recording and a test:
`pid:42`, `pid:42/tid:43`, `file:/path`, `lock:42:0x7f00`, `remote:10.0.0.7:5000`, `rank:tp:5`, `outside`.
"""

from __future__ import annotations

from typing import Final

Node = str

OUTSIDE: Final[Node] = "outside"
"""Whoever is not on this host and not named: a client, a scheduler of containers, a person."""


def process(pid: int) -> Node:
    return f"pid:{pid}"


def thread(pid: int, tid: int) -> Node:
    return f"pid:{pid}/tid:{tid}"


def file(path: str) -> Node:
    return f"file:{path}"


def lock(pid: int, address: int) -> Node:
    return f"lock:{pid}:{address:#x}"


def remote(address: str) -> Node:
    return f"remote:{address}"


def rank(dimension: str, index: int) -> Node:
    """A rank that has no process any more, or has none yet: `rank:tp:5`, `rank:global:3`."""
    return f"rank:{dimension}:{index}"


def pid_of(node: Node) -> int | None:
    """The process a node lives in, or None for a node that is no process or thread."""
    head = node.partition("/")[0]
    if not head.startswith("pid:"):
        return None
    digits = head[4:]
    return int(digits) if digits.isdigit() else None


def tid_of(node: Node) -> int | None:
    """The thread a node names, or None for a node that is no thread."""
    head, slash, tail = node.partition("/tid:")
    if not slash or not head.startswith("pid:"):
        return None
    return int(tail) if tail.isdigit() else None


def path_of(node: Node) -> str | None:
    """The path of a `file:` node."""
    return node[5:] if node.startswith("file:") else None
