"""GPD136: compiled kernels cannot be kept, or are kept on another host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Cache, Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, unread
from gpudiag.rules.preflight.words import plural

_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "fuse.sshfs", "9p", "beegfs", "gpfs", "fuse.juicefs"}
)


def evaluate(facts: Facts) -> Answer:
    reading = facts.system.caches
    if not isinstance(reading, Ok):
        return unread(reading)
    made = [finding for cache in reading.value for finding in _faults(cache)]
    return found(made, passed(f"{plural(sum(c.exists for c in reading.value), 'cache')} there, all can be written"))


def _faults(cache: Cache) -> Iterator[Finding]:
    culprits = (Culprit(node=f"file:{cache.path}", path=cache.path),)
    if not cache.space.writable:
        yield CHECK.finding(
            f"{cache.path} cannot be written: every start compiles the kernels of {cache.purpose} again, or fails",
            [seen("permissions", f"access({cache.space.path}, W_OK) is refused")],
            ("mount it writable, or set its variable to a directory that is",),
            culprits=culprits,
        )
    elif cache.space.fs_type in _NETWORK:
        yield CHECK.finding(
            f"{cache.path} lies on {cache.space.fs_type}: hosts that share it wait for each other's locks",
            [seen("file-system", f"file system type {cache.space.fs_type}")],
            ("set the variable of the cache to a local directory, one for each host",),
            culprits=culprits,
            severity="info",
        )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD136",
        name="jit-cache-unusable",
        severity="warning",
        category="environment",
        asks="can kernels that are compiled at run time be kept, on a local disk?",
    ),
    evaluate=evaluate,
)
