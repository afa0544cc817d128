"""Lock files and file locks: who has the file open, who took the lock, or that nobody does."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.file import FileFact, FileLock
from gpudiag.model.finding import Evidence
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.stack import FilePoll
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.motion import BUSY


def edges(context: Context) -> Iterator[Edge]:
    facts = {f.path: f for f in context.observation.last.files}
    for _, process in context.members():
        for poll in process.file_polls.value if isinstance(process.file_polls, Ok) else ():
            fact = facts.get(poll.path)
            if fact is not None and context.motion(process.pid, poll.tid) not in BUSY:
                yield from _poll(context, process, poll, fact)
    yield from _kernel_locks(context)


def _poll(context: Context, process: Process, poll: FilePoll, fact: FileFact) -> Iterator[Edge]:
    if fact.exists is (poll.until == "exists"):
        return
    waiter = (process.pid, poll.tid)
    stack = process.stack_of(poll.tid)
    frame = stack.frames[poll.frame].where if stack and poll.frame < len(stack.frames) else ""
    until = {"gone": "is removed", "exists": "appears", "unlocked": "can be locked"}[poll.until]
    loop = Evidence(
        source="python-stack", claim=f"thread {poll.tid} loops until {poll.path} {until}", excerpt=frame, at=context.at
    )
    # Whoever asks for a lock has the file open for a moment as well: only the kernel's table says who has it.
    holders = _lockers(context, fact) if poll.until == "unlocked" else fact.openers
    holders = tuple(p for p in holders if p != process.pid)
    source, does = ("file-locks", "holds the lock on {}") if poll.until == "unlocked" else ("open-files", "has {} open")
    for pid in holders:
        has = Evidence(source=source, claim=f"pid {pid} {does.format(poll.path)}", at=context.at)
        yield context.edge(waiter, context.index.owner(pid), "file-lock", "poll", loop, has)
    if holders or poll.until == "unlocked":
        return
    yield context.edge(waiter, node.file(poll.path), "file-lock", "poll", loop, *_nobody(context, fact))


def _lockers(context: Context, fact: FileFact) -> tuple[int, ...]:
    """Living processes that hold a kernel lock on the file."""
    reading = context.observation.last.file_locks
    locks = reading.value if isinstance(reading, Ok) else ()
    found = {
        p
        for lock in locks
        if not lock.blocked and (lock.device, lock.inode) == (fact.device, fact.inode)
        for p in (lock.pid, *lock.holders)
    }
    return tuple(sorted(p for p in found if context.index.alive(p)))


def _nobody(context: Context, fact: FileFact) -> Iterator[Evidence]:
    state = "exists" if fact.exists else "does not exist"
    yield Evidence(source="file-system", claim=f"{fact.path} {state}", excerpt=_describe(fact), at=context.at)
    if not fact.exists:
        return
    source, claim = _openness(fact)
    yield Evidence(source=source, claim=claim, at=context.at)


def _openness(fact: FileFact) -> tuple[str, str]:
    """How well it is known that nobody has the file open, as evidence source and claim."""
    if not fact.local:
        return (
            "absence",
            f"no process on this host has it open, but {fact.fs_type or 'its file system'} is shared with other hosts",
        )
    if fact.openers_complete:
        return "open-files", "no process on this host has it open (all were readable)"
    if not fact.whole_host:
        return (
            "open-files-here",
            "no process of this container has it open; processes outside share the volume and are not visible",
        )
    if fact.owner_uid is not None and fact.owner_uid not in fact.unread_uids:
        return "open-files-here", "no process of the file's owner has it open; processes of other users could not be read"
    return "absence", "no process that could be read has it open; some of the file's owner could not be read"


def _describe(fact: FileFact) -> str:
    parts = [f"{fact.size_bytes} bytes" if fact.size_bytes is not None else "", fact.fs_type or ""]
    return ", ".join(p for p in parts if p)


def _kernel_locks(context: Context) -> Iterator[Edge]:
    reading = context.observation.last.file_locks
    if not isinstance(reading, Ok):
        return
    held: dict[int, FileLock] = {lock.id: lock for lock in reading.value if not lock.blocked}
    for request in reading.value:
        if not request.blocked or (lock := held.get(request.id)) is None:
            continue
        if context.server.member(request.pid) is None:
            continue
        tid = _asking_thread(context, request.pid)
        if tid is None:
            continue
        yield from _kernel_lock(context, (request.pid, tid), lock)


def _asking_thread(context: Context, pid: int) -> int | None:
    """The thread of the process that is inside flock(2) or fcntl(2); the main thread if calls cannot be read."""
    process = context.index.by_pid.get(pid)
    if process is None:
        return None
    if not isinstance(process.syscalls, Ok):
        return pid
    return next((tid for tid, call in process.syscalls.value.items() if call.name in ("flock", "fcntl")), None)


def _kernel_lock(context: Context, waiter: tuple[int, int], lock: FileLock) -> Iterator[Edge]:
    path = lock.path or f"{lock.device}:{lock.inode}"
    excerpt = f"{lock.kind} {lock.mode} by pid {lock.pid} on {path}"
    if lock.pid > 0 and lock.pid != waiter[0] and context.index.alive(lock.pid):
        evidence = Evidence(source="file-locks", claim=f"pid {lock.pid} holds the lock on {path}", excerpt=excerpt, at=context.at)
        yield context.edge(waiter, context.index.owner(lock.pid), "file-lock", "acquire", evidence)
        return
    # flock belongs to the open file: after its taker died, whoever inherited the descriptor keeps it locked.
    heirs = [
        p.pid
        for p in context.index.snapshot.processes
        if p.pid != waiter[0]
        and isinstance(p.fds, Ok)
        and any(f.inode == lock.inode and f.device == lock.device for f in p.fds.value)
    ]
    if heirs and not context.index.alive(lock.pid):
        kept = ", ".join(f"pid {p}" for p in heirs)
        gone = Evidence(
            source="file-locks", claim=f"pid {lock.pid}, which took the lock on {path}, is gone", excerpt=excerpt, at=context.at
        )
        open_in = Evidence(source="open-files", claim=f"{kept} inherited the open file and so keeps it locked", at=context.at)
        yield context.edge(waiter, node.file(path), "file-lock", "acquire", gone, open_in)
        return
    for pid in heirs:
        claim = f"pid {pid} has {path} open, on which the lock is held"
        evidence = Evidence(source="file-locks", claim=claim, excerpt=excerpt, at=context.at)
        yield context.edge(waiter, context.index.owner(pid), "file-lock", "acquire", evidence)
    if not heirs:
        claim = f"the lock on {path} is held by nobody that can be seen here"
        evidence = Evidence(source="absence", claim=claim, excerpt=excerpt, at=context.at)
        yield context.edge(waiter, node.file(path), "file-lock", "acquire", evidence)
