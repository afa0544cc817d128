"""The interpreter lock: a thread that keeps it while it sleeps in the kernel stops every other Python thread."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.motion import Motion


def edges(context: Context) -> Iterator[Edge]:
    for _, process in context.members():
        owner = gil_keeper(context, process)
        if owner is None:
            continue
        for stack in process.stacks.value if isinstance(process.stacks, Ok) else ():
            if stack.tid != owner and _asks_for_gil(context, process.pid, stack.tid):
                evidence = Evidence(
                    source="python-stack",
                    claim=f"thread {owner} keeps the interpreter lock in every look and does not run Python",
                    excerpt=_where(process, owner),
                    at=context.at,
                )
                waiting = Evidence(
                    source="system-call",
                    claim=f"thread {stack.tid} asks for the interpreter lock again and again (futex with a timeout)",
                    at=context.at,
                )
                holder = node.thread(process.pid, owner)
                yield context.edge((process.pid, stack.tid), holder, "gil", "acquire", evidence, waiting)


def gil_keeper(context: Context, process: Process) -> int | None:
    """The thread that owned the GIL in every look while it slept in one system call.

    One that computes cannot be told from a thread that runs Python and gives the GIL away every few milliseconds.
    """
    owners = []
    for snapshot in context.observation.snapshots:
        then = snapshot.process(process.pid)
        if then is None or not isinstance(then.stacks, Ok):
            return None
        owners.append(next((s.tid for s in then.stacks.value if s.owns_gil), None))
    if len(owners) < 2 or len(set(owners)) != 1 or owners[0] is None:
        return None
    return owners[0] if context.motion(process.pid, owners[0]) is Motion.FROZEN else None


def _asks_for_gil(context: Context, pid: int, tid: int) -> bool:
    """take_gil waits in steps of sys.getswitchinterval() (5 ms; CPython Python/ceval_gil.c), so the thread wakes up often.

    A look may meet it between two steps, outside any call, so a timed futex in one of the looks is enough.
    """
    if context.motion(pid, tid) is not Motion.POLLING:
        return False
    return any(_in_timed_futex(snapshot.process(pid), tid) for snapshot in context.observation.snapshots)


def _in_timed_futex(process: Process | None, tid: int) -> bool:
    if process is None or not isinstance(process.syscalls, Ok):
        return False
    call = process.syscalls.value.get(tid)
    return call is not None and call.name == "futex" and len(call.args) > 3 and call.args[3] != 0


def _where(process: Process, tid: int) -> str:
    stack = process.stack_of(tid)
    return stack.frames[0].where if stack and stack.frames else f"tid {tid}"
