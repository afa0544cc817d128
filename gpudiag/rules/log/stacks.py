"""What stack dumps of several ranks say together: who waits for the others, and who stands elsewhere."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.model.log import DumpedThread, LogFacts, StackDump, TraceFrame

_WAITS: Final = re.compile(
    r"(?:^|\.)_?(?:all_?reduce|all_gather\w*|reduce_scatter\w*|broadcast(?!_pyobj)|all_to_all\w*|barrier|monitored_barrier|"
    r"recv(?:_tensor\w*|_object\w*)?|irecv|_allgather_base|_coalescing_manager|synchronize)$"
)
_IDLE: Final = re.compile(r"recv_requests|_broadcast_reqs_across_ranks|worker_busy_loop$|get_next_batch_to_run")
"""An idle server stands in these as well as a hung one: one look cannot tell."""
_NEAR: Final = 14
"""Frames from the innermost in which a wait counts."""


def main_thread(dump: StackDump) -> DumpedThread | None:
    """The thread that does a rank's work."""
    named = next((t for t in dump.threads if t.name in ("MainThread", "Current thread")), None)
    return named or next(iter(dump.threads), None)


def waiting_frame(dump: StackDump) -> TraceFrame | None:
    """The collective in which the main thread stands, unless an idle server would stand there too."""
    thread = main_thread(dump)
    if thread is None:
        return None
    found = next((f for f in thread.frames[:_NEAR] if _WAITS.search(f.function)), None)
    if found is None:
        return None
    position = thread.frames.index(found)
    return None if any(_IDLE.search(f.function) for f in thread.frames[position : position + 6]) else found


def by_rank(facts: LogFacts) -> dict[int, StackDump]:
    """The last dump with frames of each rank."""
    return {d.speaker.rank.global_: d for d in facts.dumps if d.speaker.rank.global_ is not None and d.threads and not d.stopped}
