"""Bytes that reach a starting server: read, mapped in, fetched from storage, put on its GPUs."""

from __future__ import annotations

import os
import time
from typing import Final

from gpudiag.collect.deadline import Guard
from gpudiag.collect.guard_protocol import StateReply, StateRequest
from gpudiag.collect.nvml import Nvml, has_driver
from gpudiag.launch.pulse import Pulse
from gpudiag.launch.tree import Tracked, Tree
from gpudiag.launch.weight_load import Loaded
from gpudiag.model.gpu import Gpu
from gpudiag.model.process import IoCounters
from gpudiag.model.reading import Ok

_MOST_READ: Final = 32
"""Processes whose counters are read: those that use most processor time; pools of compilers have hundreds."""
_GPUS_EVERY_S: Final = 1.5
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


class Counters:
    """Totals over all processes that ever were; one that ends takes nothing away."""

    def __init__(self, tree: Tree, guard: Guard) -> None:
        self._tree = tree
        self._guard = guard
        self._io: dict[int, IoCounters] = {}
        self._nvml = Nvml() if has_driver() else None
        self._asked = False
        self._asked_at = 0.0
        self._gpu_bytes: int | None = None
        self._gpu_busy = False

    def close(self) -> None:
        """End the connection to the driver."""
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None

    def read(self) -> Loaded:
        """Read them anew."""
        self._read_io()
        self._read_gpus()
        every = self._io.values()
        return Loaded(
            at=time.monotonic(),
            read_chars=sum(io.read_chars for io in every),
            most_read=max((io.read_chars for io in every), default=0),
            rss_bytes=sum(t.rss_bytes for t in self._tree.alive),
            storage_bytes=sum(io.read_bytes for io in every),
            gpu_bytes=self._gpu_bytes,
        )

    def pulse(self, loaded: Loaded, log_bytes: int) -> Pulse:
        """The same, as signs of life."""
        return Pulse(
            at=loaded.at,
            log_bytes=log_bytes,
            cpu_s=sum(t.cpu_ticks for t in self._tree.all.values()) / _TICKS_S,
            births=self._tree.births,
            bytes_moved=loaded.read_chars + loaded.rss_bytes + (loaded.gpu_bytes or 0),
            gpu_busy=self._gpu_busy,
        )

    def _read_io(self) -> None:
        chosen = sorted(self._tree.alive, key=_weight, reverse=True)[:_MOST_READ]
        replies = self._guard.ask([StateRequest(pid=t.pid, want=("io",)) for t in chosen], StateReply)
        for tracked, reply in zip(chosen, replies, strict=True):
            if isinstance(reply, StateReply) and isinstance(reply.io, Ok):
                self._io[tracked.pid] = reply.io.value

    def _read_gpus(self) -> None:
        """What was asked for at a call before, so that nobody waits for the driver."""
        now = time.monotonic()
        if self._nvml is None or now - self._asked_at < _GPUS_EVERY_S:
            return
        if self._asked:
            reading = self._nvml.answer()
            if isinstance(reading, Ok):
                ours = {t.pid for t in self._tree.alive}
                mine = [g for g in reading.value.gpus if any(p.pid in ours for p in g.processes)]
                self._gpu_bytes = sum(_bytes_of(g, ours) for g in mine)
                self._gpu_busy = any(g.utilisation_percent for g in mine)
        self._nvml.ask()
        self._asked, self._asked_at = True, now


def _weight(tracked: Tracked) -> tuple[bool, int]:
    return tracked.main, tracked.cpu_ticks


def _bytes_of(gpu: Gpu, pids: set[int]) -> int:
    return sum(p.memory_bytes or 0 for p in gpu.processes if p.pid in pids)
