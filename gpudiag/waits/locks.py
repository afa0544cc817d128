"""Locks: pthread mutexes by recorded owner, Python locks by address, those that processes share by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.node import Node
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.stack import LockUse
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.motion import BUSY


def edges(context: Context) -> Iterator[Edge]:
    for _, process in context.members():
        yield from _mutexes(context, process)
        yield from _python_locks(context, process)


def _mutexes(context: Context, process: Process) -> Iterator[Edge]:
    if not isinstance(process.futexes, Ok):
        return
    for futex in process.futexes.value:
        if futex.owner_tid is None or not context.held_still(process.pid, futex.tid):
            continue
        evidence = Evidence(
            source="lock-owner",
            claim=f"thread {futex.tid} waits for a mutex that thread {futex.owner_tid} owns",
            excerpt=f"futex word {futex.word:#x} at {futex.address:#x}, owner {futex.owner_tid}",
            at=context.at,
        )
        holder = node.thread(process.pid, futex.owner_tid)
        yield context.edge((process.pid, futex.tid), holder, "lock", "acquire", evidence)


def _python_locks(context: Context, process: Process) -> Iterator[Edge]:
    if not isinstance(process.lock_uses, Ok):
        return
    held: dict[int, list[LockUse]] = defaultdict(list)
    for use in process.lock_uses.value:
        if use.held:
            held[use.lock].append(use)
    for use in process.lock_uses.value:
        if use.held or use.locked is False or context.motion(process.pid, use.tid) in BUSY:
            continue
        yield _blocked(context, process, use, held[use.lock])


def _blocked(context: Context, process: Process, use: LockUse, held: list[LockUse]) -> Edge:
    position = Evidence(
        source="lock-address",
        claim=f"thread {use.tid} is blocked on {use.expression} at {_frame(process, use)}",
        excerpt=f"lock object at {use.lock:#x}",
        at=context.at,
    )
    holder, evidence = _holder(context, process, use, held)
    return context.edge((process.pid, use.tid), holder, "lock", "acquire", position, evidence)


def _holder(context: Context, process: Process, use: LockUse, held: list[LockUse]) -> tuple[Node, Evidence]:
    """Who has the lock: a frame in another process, the owner that it records, a frame in this process; else the lock itself."""
    if use.shared is not None and (far := _held_elsewhere(context, process, use)) is not None:
        other, theirs = far
        claim = f"thread {theirs.tid} of pid {other.pid} holds the same shared lock at {_frame(other, theirs)}"
        evidence = Evidence(source="lock-address", claim=claim, excerpt=f"shared memory {use.shared}", at=context.at)
        return node.thread(other.pid, theirs.tid), evidence
    stacks = process.stacks.value if isinstance(process.stacks, Ok) else ()
    owner = next((s.tid for s in stacks if use.owner_ident and s.ident == use.owner_ident), None)
    if owner is not None:
        claim = f"the lock records thread {owner} as its owner"
        evidence = Evidence(source="lock-owner", claim=claim, excerpt=f"owner ident {use.owner_ident:#x}", at=context.at)
        return node.thread(process.pid, owner), evidence
    excerpt = f"lock object at {use.lock:#x}"
    # Prefer another thread; a thread that holds the very lock it waits for is a deadlock of its own.
    holder = next((h for h in held if h.tid != use.tid), next(iter(held), None))
    if holder is None:
        who = "process" if use.shared is not None else "thread"
        claim = f"the lock is taken, and no frame of any {who} that could be read is inside a block that holds it"
        return node.lock(process.pid, use.lock), Evidence(source="absence", claim=claim, excerpt=excerpt, at=context.at)
    claim = f"thread {holder.tid} holds the same lock as {holder.expression} at {_frame(process, holder)}"
    # What acquire() took, any thread may have released: the text does not tell.
    source = "lock-address" if holder.by_with else "lock-text"
    return node.thread(process.pid, holder.tid), Evidence(source=source, claim=claim, excerpt=excerpt, at=context.at)


def _held_elsewhere(context: Context, process: Process, use: LockUse) -> tuple[Process, LockUse] | None:
    """Who holds a lock that several processes share, in another process."""
    for _, other in context.members():
        if other.pid == process.pid or not isinstance(other.lock_uses, Ok):
            continue
        for theirs in other.lock_uses.value:
            if theirs.held and theirs.shared == use.shared:
                return other, theirs
    return None


def _frame(process: Process, use: LockUse) -> str:
    stack = process.stack_of(use.tid)
    return stack.frames[use.frame].where if stack and use.frame < len(stack.frames) else f"frame {use.frame}"
