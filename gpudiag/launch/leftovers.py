"""What a server leaves in /dev/shm and in the temporary directory when it is killed: seen while it lived, removed after.

Only what is certain to be this server's goes: shared memory that one of its processes had mapped, a socket that it had bound,
the rendezvous file that it named in its log; of this user, touched since the server was started, and still the same file.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpudiag.collect import proc_net, procfs
from gpudiag.collect.deadline import Guard
from gpudiag.collect.guard_protocol import StateReply, StateRequest
from gpudiag.launch.kernel import socket_inodes
from gpudiag.model.reading import Ok

_MOST: Final = 10_000
_SHM: Final = "/dev/shm/"  # noqa: S108  the kernel's own place, nothing is created there
_RENDEZVOUS: Final = re.compile(rb"init_method=file://(/[\w./-]{1,200})")
"""vLLM 0.32: 'distributed_init_method=file:///tmp/vllm_dist_...'."""


class Identity(NamedTuple):
    """Device and inode: a path may be another file later."""

    device: int
    inode: int


class Leftovers:
    """Grows while the server lives."""

    def __init__(self, guard: Guard, started_at: float) -> None:
        self._guard = guard
        self._started_at = started_at
        self._seen: dict[str, Identity] = {}
        self._temporary = os.path.realpath(tempfile.gettempdir()) + "/"

    def note(self, pids: Iterable[int]) -> None:
        """Remember what these processes have mapped or bound now."""
        pids = list(pids)
        replies = self._guard.ask([StateRequest(pid=pid, want=("maps",)) for pid in pids], StateReply)
        names = {
            name.removesuffix(" (deleted)")
            for reply in replies
            if isinstance(reply, StateReply) and isinstance(reply.shared_memory, Ok)
            for name in reply.shared_memory.value
        }
        for name in sorted(names | self._sockets(pids)):
            self._remember(name)

    def note_log(self, text: bytes) -> None:
        """Remember the file of a rendezvous (torch's FileStore) that the server tells of, which nobody keeps open."""
        for match in _RENDEZVOUS.finditer(text):
            self._remember(procfs.text(match[1]))

    def remove(self) -> list[str]:
        """Remove what is still there of it; the paths. To be called when every process of the server is gone."""
        removed = []
        for path, identity in self._seen.items():
            with contextlib.suppress(OSError):
                if self._identity(path) == identity:
                    os.unlink(path)
                    removed.append(path)
        return removed

    def _remember(self, path: str) -> None:
        if path in self._seen or len(self._seen) >= _MOST or not path.startswith((_SHM, self._temporary)):
            return
        with contextlib.suppress(OSError):
            if (identity := self._identity(path)) is not None:
                self._seen[path] = identity

    def _identity(self, path: str) -> Identity | None:
        """None for what is not ours. Raises OSError if it is not there."""
        status = os.lstat(path)
        ours = status.st_uid == os.geteuid() and status.st_ctime >= self._started_at - 1.0
        kind = stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)
        return Identity(status.st_dev, status.st_ino) if ours and kind else None

    def _sockets(self, pids: list[int]) -> set[str]:
        """Paths of Unix sockets that these processes have bound or accepted; one that connects has no name."""
        inodes: set[int] = set()
        for pid in pids:
            with contextlib.suppress(OSError):
                inodes |= socket_inodes(pid)
        if not inodes:
            return set()
        with contextlib.suppress(OSError):
            return {s.local for s in proc_net.unix_sockets("self") if s.inode in inodes and s.local.startswith("/")}
        return set()
