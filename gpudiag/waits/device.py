"""Host threads that wait for their GPU, and through it for what the kernel there waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence
from gpudiag.model.stack import Frame, PyStack
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.gpus import WAITING
from gpudiag.waits.motion import Motion

SYNC_FRAMES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("torch/cuda/__init__.py", ("synchronize",)),
    ("torch/cuda/streams.py", ("synchronize", "Stream.synchronize", "Event.synchronize")),
    ("torch/cuda/memory.py", ("empty_cache",)),
)
"""Functions that return when the GPU has done its work (torch 2.6 to 2.14)."""


def sync_frame(stack: PyStack | None) -> Frame | None:
    """The frame in which a thread waits for its GPU: the innermost one, or the one that called into native code."""
    for frame in stack.frames if stack else ():
        if frame.native:
            continue
        known = any(frame.file.endswith(f) and frame.function in functions for f, functions in SYNC_FRAMES)
        return frame if known else None
    return None


def edges(context: Context) -> Iterator[Edge]:
    """Host threads that wait for their GPU, and through it for what the kernel there waits for.

    They stand in a synchronisation; or, main threads of ranks only, at one and the same line with the processor in use, as in
    a driver call that Python does not show (`.item()`, a copy to the host).
    """
    for member, process, thread in context.threads():
        device = context.devices.get(member.pid)
        if device is None or device.state not in WAITING:
            continue
        frame = sync_frame(process.stack_of(thread.tid))
        stands = (
            context.stack_evidence(process.pid, thread.tid, frame, "waits for its GPU")
            if frame is not None
            else _spins(context, process.pid)
            if thread.tid == process.pid and member.ranked
            else None
        )
        if stands is None:
            continue
        resident = device.evidence(f"a kernel is resident on GPU {device.gpu.index} all the time")
        yield context.edge((process.pid, thread.tid), device.node, "device-sync", "event", stands, resident, need="reply")


def _spins(context: Context, pid: int) -> Evidence | None:
    known = context.known(pid, pid)
    if context.motion(pid, pid) is not Motion.SPINNING or (known is not None and known.kind is not None):
        return None
    claim = f"the main thread of pid {pid} used the processor at one and the same line while its GPU was never free"
    return Evidence(source="elimination", claim=claim, at=context.at)
