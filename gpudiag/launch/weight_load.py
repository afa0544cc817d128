"""How far the loading of weights is: bytes against the size of the checkpoint, from where, how fast, how much longer."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from gpudiag.launch.phases import Fraction

_WINDOW_S: Final = 10.0
_DISK_SHARE: Final = 0.2
"""Of the bytes that arrived, what must have come from storage before it is called the disk."""


class Loaded(Struct, frozen=True, kw_only=True):
    """Counters over all processes of the server; `at` is monotonic seconds, the rest bytes.

    A checkpoint that is read shows in `read_chars`, of a single rank in `most_read`; one that is mapped into memory in
    `rss_bytes` alone, and in GPU memory once it is there. `storage_bytes` is what the kernel fetched for either.
    """

    at: float
    read_chars: int
    most_read: int
    rss_bytes: int
    storage_bytes: int
    gpu_bytes: int | None = None


class Amount(Struct, frozen=True, kw_only=True):
    """What to show. `rate_per_s` is of the last ten seconds."""

    done: float
    total: float | None
    rate_per_s: float | None
    eta_s: float | None
    detail: str


class WeightLoad:
    """Follows one load from its first counters on."""

    def __init__(self, first: Loaded, checkpoint_bytes: int | None) -> None:
        self._first = first
        self._total = checkpoint_bytes
        self._seen: deque[tuple[float, float]] = deque([(first.at, 0.0)])
        self._most = 0.0

    def amount(self, now: Loaded, shards: Fraction | None) -> Amount:
        """`shards` is the engine's own progress bar, which knows best where there is one."""
        self._most = max(self._most, self._done(now, shards))
        self._seen.append((now.at, self._most))
        while len(self._seen) > 2 and self._seen[1][0] <= now.at - _WINDOW_S:
            self._seen.popleft()
        since, before = self._seen[0]
        rate = (self._most - before) / (now.at - since) if now.at > since else None
        left = self._total - self._most if self._total else None
        eta = left / rate if left is not None and rate else None
        return Amount(done=self._most, total=self._total, rate_per_s=rate, eta_s=eta, detail=self._source(now, shards))

    def _done(self, now: Loaded, shards: Fraction | None) -> float:
        if shards is not None and shards.total and self._total:
            # Whole files only; between two of them the counters below know more.
            whole = self._total * shards.done / shards.total
            next_file = self._total * min(shards.done + 1, shards.total) / shards.total
            return min(max(whole, self._counted(now)), next_file)
        counted = self._counted(now)
        return min(counted, self._total) if self._total else counted

    def _counted(self, now: Loaded) -> float:
        """Weights end up on the GPUs, each byte once; without them every rank may read or map all files."""
        first = self._first
        if now.gpu_bytes is not None and first.gpu_bytes is not None:
            return float(max(0, now.gpu_bytes - first.gpu_bytes))
        return float(max(0, now.most_read - first.most_read, now.rss_bytes - first.rss_bytes))

    def _source(self, now: Loaded, shards: Fraction | None) -> str:
        arrived = max(now.read_chars - self._first.read_chars, now.rss_bytes - self._first.rss_bytes, 1)
        stored = now.storage_bytes - self._first.storage_bytes
        where = "disk" if stored >= _DISK_SHARE * arrived else "page cache"
        return f"{where}, file {min(shards.done + 1, shards.total)} of {shards.total}" if shards is not None else where
