"""What an earlier look still proves: a thread that has not run since then stands where it stood."""

from __future__ import annotations

from gpudiag.collect import procfs
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.stack import PyStack


def unmoved_stacks(earlier: Process, now: Process, *, need_locals: bool) -> tuple[PyStack, ...] | None:
    """The stacks of the earlier look if they are provably those of now, else None.

    They are if no Python thread has spent a nanosecond on a processor between the thread states of both looks, that is
    from before the earlier dump until now, is not running now, and no thread is new. Objects that other threads change
    are no matter: stacks hold addresses, and a frame that has not run keeps its objects alive.
    """
    if earlier.start_ticks != now.start_ticks or not isinstance(earlier.stacks, Ok):
        return None
    stacks = earlier.stacks.value
    if need_locals and not has_locals(stacks):
        return None
    before = {t.tid: t for t in earlier.threads}
    after = {t.tid: t for t in now.threads}
    if not after.keys() <= before.keys():
        return None
    for stack in stacks:
        first, last = before.get(stack.tid), after.get(stack.tid)
        if (
            first is None
            or last is None
            or last.run_ns is None
            or first.run_ns != last.run_ns
            or "R" in (first.state, last.state)
        ):
            return None
    return stacks


def still_frozen(earlier: Process, now: Process) -> bool:
    """Whether no thread of the process, Python or not, has run between the thread states of both looks.

    Then its private memory is as it was at the earlier look, and what was read from there still holds.
    """
    before = {t.tid: t for t in earlier.threads}
    return (
        earlier.start_ticks == now.start_ticks
        and before.keys() == {t.tid for t in now.threads}
        and all(
            t.run_ns is not None and t.run_ns == before[t.tid].run_ns and "R" not in (t.state, before[t.tid].state)
            for t in now.threads
        )
    )


def unmoved_uses(earlier: Process, now: Process) -> bool:
    """Whether the lock uses and file polls of the earlier look are those of now, for a process whose stacks are.

    A lock that several processes share changes without any of them running, and so does a polled file.
    """
    return (
        isinstance(earlier.lock_uses, Ok)
        and isinstance(earlier.file_polls, Ok)
        and not earlier.file_polls.value
        and not any(use.shared for use in earlier.lock_uses.value)
        and still_frozen(earlier, now)
    )


def still_without_communicators(earlier: Process, now: Process) -> bool:
    """Whether NCCL had no communicator in the process at the earlier look, and none can have come since.

    Its table of communicators lies in private memory.
    """
    return (
        isinstance(earlier.nccl, Ok) and not any(copy.communicators for copy in earlier.nccl.value) and still_frozen(earlier, now)
    )


def has_locals(stacks: tuple[PyStack, ...]) -> bool:
    """Whether these stacks were read with their locals."""
    return any(frame.locals for stack in stacks for frame in stack.frames)


def quiet(process: Process) -> bool:
    """Whether no thread has run since its state was read a moment ago, so that the same may hold until the next look."""
    if not process.threads:
        return False
    for thread in process.threads:
        if thread.run_ns is None or thread.state == "R":
            return False
        try:
            if procfs.run_ns(process.pid, thread.tid) != thread.run_ns:
                return False
        except OSError:
            return False
    return True
