"""Waits inside an engine: queues between its processes (the engine's table names the peer), and events inside one process."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member
from gpudiag.waits.context import Context, Edge, Mode
from gpudiag.waits.motion import Motion


def edges(context: Context) -> Iterator[Edge]:
    for member, process in context.members():
        for thread in process.threads:
            known = context.known(process.pid, thread.tid)
            if known is None or known.kind != "ipc" or context.motion(process.pid, thread.tid) is Motion.MOVING:
                continue
            need = known.need or "reply"
            mode: Mode = "write" if known.frame.function.endswith(("enqueue", "acquire_write")) else "read"
            evidence = context.stack_evidence(
                process.pid,
                thread.tid,
                known.frame,
                f"{member.role} pid {process.pid} waits for {' or '.join(known.peers) or 'a peer'}",
            )
            for peer in _owing(context, process, thread.tid, _peers(context, member, known.peers)):
                yield context.edge((process.pid, thread.tid), context.index.owner(peer.pid), "ipc", mode, evidence, need=need)


def _peers(context: Context, member: Member, roles: tuple[str, ...]) -> list[Member]:
    """Members with one of the roles, those below or above the waiter in the process tree first."""
    peers = [m for m in context.server.members if m.role in roles and m.pid != member.pid and m.pid in context.index.by_pid]
    mine = context.index.by_pid[member.pid]
    related = [m for m in peers if context.index.by_pid[m.pid].ppid == member.pid or m.pid == mine.ppid]
    return related or peers


def _owing(context: Context, process: Process, tid: int, peers: list[Member]) -> list[Member]:
    """Of several workers the ones that owe this answer.

    vLLM reads the result of a step from one worker only, the first tensor-parallel rank of the last pipeline stage
    (v1/executor/multiproc_executor.py, _get_output_rank, 0.24 to 0.33). Other calls read from all in turn: one that
    waits for work itself owes nothing as long as another does not.
    """
    stack = process.stack_of(tid)
    if stack is not None and any(f.file.endswith(_ENGINE) and f.function.rsplit(".", 1)[-1] in _STEP for f in stack.frames):
        stages = [m.rank.pp or 0 for m in peers]
        return [m for m in peers if (m.rank.pp or 0) == max(stages, default=0) and not m.rank.tp]
    busy = [m for m in peers if (k := context.known(m.pid, m.pid)) is None or k.need != "work"]
    return busy or peers


_ENGINE = ("v1/executor/multiproc_executor.py", "v1/engine/core.py")
_STEP = frozenset({"execute_model", "sample_tokens", "_wait_for_response", "step_with_batch_queue", "step"})


def event_edges(context: Context, so_far: list[Edge]) -> Iterator[Edge]:
    """A thread that waits for an event can only be woken by a thread of its own process.

    If exactly one other thread of the process waits for an answer from elsewhere, it is the one that could set it.
    """
    waiters = {e.waiter for e in so_far if e.wait.need == "reply"}
    for _, process in context.members():
        for thread in process.threads:
            me = node.thread(process.pid, thread.tid)
            known = context.known(process.pid, thread.tid)
            if thread.tid != process.pid or known is None or known.kind != "event" or known.need == "work" or me in waiters:
                continue
            if not context.held_still(process.pid, thread.tid):
                continue
            joined = _joined(process, thread.tid)
            if joined is not None:
                other, address = joined
                evidence = Evidence(
                    source="python-stack",
                    claim=f"thread {thread.tid} waits for thread {other} of its process to end",
                    excerpt=f"{known.frame.where}: Thread object at {address:#x}",
                    at=context.at,
                )
                yield context.edge((process.pid, thread.tid), node.thread(process.pid, other), "ipc", "event", evidence)
                continue
            others = [w for w in waiters if node.pid_of(w) == process.pid and w != me]
            if len(others) == 1:
                evidence = Evidence(
                    source="source-text",
                    claim=f"thread {node.tid_of(others[0])} is the only thread of pid {process.pid} that could end this wait",
                    excerpt=known.frame.where,
                    at=context.at,
                )
                yield context.edge((process.pid, thread.tid), others[0], "ipc", "event", evidence)


def _joined(process: Process, tid: int) -> tuple[int, int] | None:
    """The thread that a thread joins: the one whose first frames run with the same Thread object."""
    stack = process.stack_of(tid)
    joins = [f for f in stack.frames if f.function == "Thread.join" and f.file.endswith("threading.py")] if stack else []
    if not joins or "self" not in joins[0].locals or not isinstance(process.stacks, Ok):
        return None
    address = joins[0].locals["self"]
    for other in process.stacks.value:
        if other.tid != tid and any(f.function == "Thread._bootstrap" and f.locals.get("self") == address for f in other.frames):
            return other.tid, address
    return None
