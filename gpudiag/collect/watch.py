"""Looks at the same servers again and again, for somebody who watches them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import msgspec

from gpudiag.collect.deadline import Guard
from gpudiag.collect.flight_look import FlightRecorders
from gpudiag.collect.gpu_look import GpuSide
from gpudiag.collect.one_look import OneLook
from gpudiag.collect.options import LookOptions
from gpudiag.model.snapshot import Observation, Snapshot

_DUMPS_EVERY_S: Final = 10.0
"""Dumps of a flight recorder do not change by themselves, and comparing those of many ranks takes a second."""
_FIRM_S: Final = 5.0
"""What did not move for so long is called standing still with confidence (rules.confidence)."""


class Watch:
    """One guard and one connection to the driver for all looks. Belongs to the thread that made it, as its children do."""

    def __init__(self, roots: Sequence[int], options: LookOptions) -> None:
        self._roots = tuple(roots)
        self._options = options
        self._stack = contextlib.ExitStack()
        self._guard = Guard(options.deadline_s)
        self._gpus = GpuSide(options.withhold)
        self._looks: list[Snapshot] = []
        self._dumps: tuple[float, Snapshot] | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(self._guard)
        self._stack.enter_context(self._gpus)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def look(self) -> Observation:
        """Look once more; the looks that say most about change: one at least 5 s old, the one before, and this one."""
        earlier = self._looks[-1] if self._looks else None
        found = OneLook(self._roots, self._options, self._guard, self._gpus, earlier).take()
        self._looks.append(self._with_dumps(found))
        return Observation(snapshots=self._telling())

    def look_natively(self) -> Snapshot:
        """One look with C frames too, which stops each process for the moment.

        It stands apart: beside stacks without C frames it would look as if every thread had moved.
        """
        options = msgspec.structs.replace(self._options, stacks="native")
        return OneLook(self._roots, options, self._guard, self._gpus, None).take()

    def spent_s(self) -> float:
        """Processor seconds of this process, of the children that have ended, and of the guard, since they began."""
        return sum(os.times()[:4]) + self._guard.cpu_s()

    def _with_dumps(self, found: Snapshot) -> Snapshot:
        if self._dumps is None or found.monotonic_s - self._dumps[0] >= _DUMPS_EVERY_S:
            self._dumps = (found.monotonic_s, FlightRecorders(self._options, self._guard).add_to(found))
        return msgspec.structs.replace(found, flight=self._dumps[1].flight)

    def _telling(self) -> tuple[Snapshot, ...]:
        """What is older than the youngest look of at least 5 s ago is forgotten."""
        now = self._looks[-1].monotonic_s
        old = [n for n, s in enumerate(self._looks) if now - s.monotonic_s >= _FIRM_S]
        if old:
            del self._looks[: old[-1]]
        middle = self._looks[-2:-1] if len(self._looks) > 2 else []
        return (*self._looks[:1], *middle, *(self._looks[-1:] if len(self._looks) > 1 else []))
