"""Looks at servers: every source once, in the order in which they disturb each other least."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gpudiag.collect import procfs
from gpudiag.collect.access import require_own_proc
from gpudiag.collect.deadline import Guard
from gpudiag.collect.flight_look import FlightRecorders
from gpudiag.collect.gpu_look import GpuSide
from gpudiag.collect.guard_protocol import StateReply, StateRequest, Want
from gpudiag.collect.host import own_host
from gpudiag.collect.one_look import OneLook
from gpudiag.collect.options import LookOptions
from gpudiag.collect.process_reader import read_light
from gpudiag.collect.states import with_state
from gpudiag.model.process import GONE, Process
from gpudiag.model.snapshot import Observation, Snapshot

__all__ = ["LookOptions", "look", "observe", "scan"]

_SCAN_DEADLINE_S = 1.0
_CONFIRM_AFTER_S = 5.0
_KTHREADD = 2
_PYTHON_NAMES = ("python", "pt_main", "torch")


def scan(guard: Guard | None = None) -> Snapshot:
    """Every visible process but kernel threads, in little detail (no threads, no stacks): to find servers in.

    With `guard` its child reads, else one of its own. Raises NotInspectableError if /proc is not that of gpudiag's own pid
    namespace.
    """
    require_own_proc()
    at, monotonic_s = time.time(), time.monotonic()
    with _guarding(guard, _SCAN_DEADLINE_S) as guard:
        processes = [p for pid in procfs.pids() if (p := read_light(pid)) is not None and not _of_kernel(p)]
        alive = [p for p in processes if p.state not in GONE]
        replies = guard.ask([StateRequest(pid=p.pid, want=_naming(p)) for p in alive], StateReply)
        named = {p.pid: with_state(p, reply) for p, reply in zip(alive, replies, strict=True)}
    return Snapshot(
        host=own_host(),
        at=at,
        monotonic_s=monotonic_s,
        processes=tuple(named.get(p.pid, p) for p in processes),
        took_s=time.monotonic() - monotonic_s,
    )


def _naming(process: Process) -> tuple[Want, ...]:
    """What a process may be recognised by: its command line, and for Python the RANK that a launcher gave it."""
    return ("cmdline", "environ") if process.name.startswith(_PYTHON_NAMES) else ("cmdline",)


def look(roots: Sequence[int], options: LookOptions | None = None) -> Snapshot:
    """One look at the trees below `roots`, which are in full detail; those at their other ends have few fields.

    A root that does not exist is no error: the snapshot then lacks it.
    """
    options = options or LookOptions()
    with Guard(options.deadline_s) as guard, GpuSide(options.withhold) as gpus:
        snapshot = OneLook(roots, options, guard, gpus, None).take()
        recorders = FlightRecorders(options, guard)
        recorders.ask(snapshot)
        recorders.wait()
        return recorders.add_to(snapshot)


def observe(
    roots: Sequence[int],
    options: LookOptions | None = None,
    *,
    samples: int = 2,
    interval_s: float = 1.0,
    confirm: bool = False,
    guard: Guard | None = None,
    meanwhile: Callable[[Snapshot, float], None] | None = None,
) -> Observation:
    """`samples` looks that start `interval_s` apart, and with `confirm` one more at least 5 s after the first.

    Flight recorders are asked after the first look and have answered before the last: what stood still in all looks did so
    when they wrote their dumps. That takes seconds, so there is one look more as with `confirm`.

    Only the last look need have locals and what follows from them (lock uses, polled files). A process none of whose
    Python threads has run since the look before is not dumped again: its stacks are those. Between the first two looks
    `meanwhile` is given the first and the seconds that are left until the second. With `guard` its child reads, else one
    of its own. Raises ValueError for less than one sample.
    """
    if samples < 1:
        raise ValueError("an observation needs at least one look")
    options = options or LookOptions()
    starts = [interval_s * n for n in range(samples)]
    if confirm or options.flight_recorder:
        starts.append(max(starts[-1] + interval_s, _CONFIRM_AFTER_S))
    snapshots: list[Snapshot] = []
    with _guarding(guard, options.deadline_s) as guard, GpuSide(options.withhold) as gpus:
        recorders = FlightRecorders(options, guard)
        for number, start in enumerate(starts):
            if snapshots:
                time.sleep(max(0.0, snapshots[0].monotonic_s + start - time.monotonic()))
            last = number == len(starts) - 1
            if last:
                recorders.wait()
            chosen = options if last else msgspec.structs.replace(options, locals=False, ras=False)
            one = OneLook(roots, chosen, guard, gpus, snapshots[-1] if snapshots else None)
            snapshots.append(one.take())
            if number == 0:
                recorders.ask(snapshots[0])
                due = snapshots[0].monotonic_s + starts[1] if starts[1:] else 0.0
                one.rehearse(due)
                if meanwhile is not None:
                    meanwhile(snapshots[0], max(0.0, due - time.monotonic()))
        snapshots[-1] = recorders.add_to(snapshots[-1])
    return Observation(snapshots=tuple(snapshots))


@contextlib.contextmanager
def _guarding(given: Guard | None, deadline_s: float) -> Iterator[Guard]:
    if given is not None:
        given.renew(deadline_s)
        yield given
        return
    with Guard(deadline_s) as own:
        yield own


def _of_kernel(process: Process) -> bool:
    if _KTHREADD not in (process.pid, process.ppid):
        return False
    try:
        # In a container pid 2 is a process like any other.
        return procfs.read_stat(process.pid).kernel_thread
    except OSError:
        return False
