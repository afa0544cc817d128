"""An edge of the wait-for graph."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpudiag.model.finding import Evidence
from gpudiag.model.node import Node

WaitKind = Literal[
    "collective", "p2p", "lock", "gil", "file-lock", "ipc", "socket", "store", "child", "device-sync", "gpu-kernel", "io"
]
Need = Literal["reply", "work"]


class Wait(Struct, frozen=True, kw_only=True):
    """`waiter` waits for `holder`.

    `need` is 'reply' when somebody owes an answer (only these carry blame and make cycles) and 'work' when a worker
    loop waits to be given something to do.
    """

    waiter: Node
    holder: Node
    kind: WaitKind
    need: Need
    evidence: tuple[Evidence, ...]
