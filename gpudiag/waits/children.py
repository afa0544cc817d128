"""A thread that waits for a child process: a compiler, a tool, a worker it joins."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence
from gpudiag.model.process import GONE, STOPPED, Process
from gpudiag.model.stack import PyStack
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.motion import Motion

WAIT_CALLS = frozenset({"wait4", "waitid", "waitpid"})
POLL_CALLS = frozenset({"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"})
"""How ninja waits for the commands it started: it listens to their output."""
_P_PID = 1
"""idtype of waitid(2) that names one process (linux/wait.h)."""


def edges(context: Context) -> Iterator[Edge]:
    for _, process, thread in context.threads():
        if context.motion(process.pid, thread.tid) is Motion.MOVING:
            continue
        found = _children(context, process, thread.tid)
        if found is None:
            continue
        children, how = found
        for child in children:
            claim = f"thread {thread.tid} waits for its child {child.pid} ({child.title[:60]}) to end"
            evidence = Evidence(
                source="system-call" if how != "subprocess" else "python-stack", claim=claim, excerpt=how, at=context.at
            )
            yield context.edge((process.pid, thread.tid), _child_node(child), "child", "child", evidence)


def _child_node(child: Process) -> str:
    if child.state in STOPPED or child.main_thread is None:
        return node.process(child.pid)
    return node.thread(child.pid, child.pid)


def _children(context: Context, process: Process, tid: int) -> tuple[tuple[Process, ...], str] | None:
    living = tuple(c for c in context.index.children.get(process.pid, ()) if c.state not in GONE)
    call = context.index.syscall(process.pid, tid)
    if call is not None and call.name in WAIT_CALLS and call.args:
        named = call.args[1] if call.name == "waitid" and call.args[0] == _P_PID else call.args[0] if call.name != "waitid" else 0
        pid = _signed(named)
        ours = _translate(context, process, pid) if pid > 0 else None
        if ours is not None:
            return tuple(c for c in living if c.pid == ours), f"{call.name}({pid})"
        tools = tuple(c for c in living if (m := context.server.member(c.pid)) is None or m.role != "tracker")
        # A wait for any child ends with the first: which one that will be is not visible.
        return (tools, f"{call.name}({pid})") if pid <= 0 and len(tools) == 1 else None
    if call is not None and call.name in POLL_CALLS and living and _drives_a_build(context, process):
        return living, call.name
    stack = process.stack_of(tid)
    if stack is not None and _in_subprocess(stack):
        tools = tuple(c for c in living if (m := context.server.member(c.pid)) is None or m.role in ("compiler", "helper"))
        return (tools, "subprocess") if len(tools) == 1 else None
    return None


def _drives_a_build(context: Context, process: Process) -> bool:
    member = context.server.member(process.pid)
    return member is not None and member.role == "compiler"


def _signed(value: int) -> int:
    value &= 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def _translate(context: Context, process: Process, pid: int) -> int | None:
    """The observer's number for a pid that the process knows by its own namespace's number."""
    for child in context.index.children.get(process.pid, ()):
        if child.pid == pid or (child.ns_pids and child.ns_pids[-1] == pid and child.pid_namespace == process.pid_namespace):
            return child.pid
    return None


def _in_subprocess(stack: PyStack) -> bool:
    return any(
        f.file.endswith("/subprocess.py") and f.function.rsplit(".", 1)[-1] in ("wait", "_wait", "communicate", "_communicate")
        for f in stack.frames[:4]
    )
