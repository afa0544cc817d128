"""Frames in which a thread is known to wait, and what it waits for there.

A table entry names a function and the end of its file's path. The innermost entry on a stack says how the thread waits;
an entry further out may refine it (a queue read inside a worker loop waits for work, not for a reply).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from gpudiag.model.stack import Frame, PyStack
from gpudiag.model.wait import Need, WaitKind

Role = str


class WaitFrame(Struct, frozen=True, kw_only=True):
    """One row. `functions` are matched against the last parts of the qualified name.

    `kind` None leaves the kind to other evidence (sockets, futexes) and only says what is needed. `op` names a
    collective or point-to-point operation. `peers` are the roles that owe the answer; `polls` marks a wait that an
    idle engine repeats for ever.
    """

    file: str
    functions: tuple[str, ...]
    kind: WaitKind | Literal["event"] | None
    need: Need | None = None
    op: str | None = None
    peers: tuple[Role, ...] = ()
    polls: bool = False

    def matches(self, frame: Frame) -> bool:
        if not frame.file.endswith(self.file):
            return False
        function = frame.function
        return any(function == f or function.endswith(f".{f}") for f in self.functions)


class Known(Struct, frozen=True, kw_only=True):
    """What the table says about one stack: the wait, the frame that proves it and the frame that called into it."""

    kind: WaitKind | Literal["event"] | None
    need: Need | None
    op: str | None
    peers: tuple[Role, ...]
    polls: bool
    frame: Frame
    caller: Frame | None


C10D = "torch/distributed/distributed_c10d.py"
COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "all_reduce_coalesced",
)  # fmt: skip
OBJECT_COLLECTIVES = ("broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list")
"""c10d functions as of torch 2.14; the object variants call a plain one inside, and the outer name says more."""


def _ops(file: str, functions: Iterable[str], kind: WaitKind) -> Iterator[WaitFrame]:
    for function in functions:
        yield WaitFrame(file=file, functions=(function,), kind=kind, need="reply", op=function)


COMMON: tuple[WaitFrame, ...] = (
    *_ops(C10D, COLLECTIVES + OBJECT_COLLECTIVES, "collective"),
    *_ops(C10D, ("recv", "send", "recv_object_list", "send_object_list", "batch_isend_irecv"), "p2p"),
    WaitFrame(file=C10D, functions=("init_process_group",), kind="store", need="reply"),
    WaitFrame(file=C10D, functions=("_store_based_barrier",), kind="store", need="reply"),
    WaitFrame(
        file="torch/distributed/rendezvous.py",
        functions=("_create_c10d_store", "_tcp_rendezvous_handler", "_env_rendezvous_handler"),
        kind="store",
        need="reply",
    ),
    WaitFrame(file="torch/utils/file_baton.py", functions=("FileBaton.wait",), kind="file-lock", need="reply"),
    WaitFrame(file="concurrent/futures/thread.py", functions=("_worker",), kind="event", need="work"),
    WaitFrame(file="multiprocessing/pool.py", functions=("worker",), kind=None, need="work"),
    WaitFrame(file="multiprocessing/resource_tracker.py", functions=("main",), kind=None, need="work"),
    WaitFrame(file="multiprocessing/forkserver.py", functions=("main",), kind=None, need="work"),
    WaitFrame(file="torch/_inductor/compile_worker/subproc_pool.py", functions=("main",), kind=None, need="work"),
    WaitFrame(file="concurrent/futures/process.py", functions=("_process_worker",), kind=None, need="work"),
    WaitFrame(file="concurrent/futures/_base.py", functions=("Future.result",), kind="event", need="reply"),
    WaitFrame(file="threading.py", functions=("Condition.wait", "Event.wait", "Barrier.wait", "Semaphore.acquire"), kind="event"),
    WaitFrame(file="threading.py", functions=("Thread.join", "Thread._wait_for_tstate_lock"), kind="event", need="reply"),
    WaitFrame(file="queue.py", functions=("Queue.get", "Queue.put", "Queue.join"), kind="event"),
    WaitFrame(file="uvloop/__init__.py", functions=("run",), kind=None, need="work"),
    WaitFrame(file="selectors.py", functions=("EpollSelector.select",), kind=None),
    WaitFrame(file="socketserver.py", functions=("BaseServer.serve_forever",), kind=None, need="work"),
)

PLUMBING = (
    "threading.py", "queue.py", "selectors.py", "socket.py", "contextlib.py", "subprocess.py", "asyncio/base_events.py",
    "asyncio/runners.py", "concurrent/futures/_base.py", "multiprocessing/connection.py", "multiprocessing/queues.py",
    "torch/distributed/c10d_logger.py", "torch/_ops.py", "torch/utils/_contextlib.py", "torch/nn/modules/module.py",
    "zmq/sugar/poll.py", "zmq/sugar/socket.py", "torch/distributed/distributed_c10d.py",
)  # fmt: skip
"""Files whose frames say how a thread waits but not why: the frame to look at is the first one outside them."""

MECHANISM = (
    *PLUMBING,
    "shm_broadcast.py",
    "cpu_communicator.py",
    "vllm/distributed/parallel_state.py",
    "sglang/srt/utils/common.py",
    "io_struct.py",
    "multiproc_executor.py",
    "http/client.py",
    "urllib3/connection.py",
    "ssl.py",
)
"""Files that may lie between a wait and the frame that says what it is for. Anything else inside a worker loop is work."""


def known_wait(stack: PyStack, table: tuple[WaitFrame, ...]) -> Known | None:
    """Read a stack against a table. None where no frame is known to wait."""
    found: Known | None = None
    waiting = True
    for i, frame in enumerate(stack.frames):
        row = next((r for r in table if r.matches(frame)), None)
        if row is None:
            waiting = waiting and (frame.native or frame.file.endswith(MECHANISM))
            if found is not None and not waiting:
                # Whatever called this from further out has other things to do than this wait.
                break
            continue
        if found is None and row.op is None and not waiting:
            continue
        caller = next((f for f in stack.frames[i + 1 :] if not f.file.endswith(PLUMBING)), None)
        if found is None:
            waiting = True
            found = Known(kind=row.kind, need=row.need, op=row.op, peers=row.peers, polls=row.polls, frame=frame, caller=caller)
            continue
        # An outer frame knows the purpose; the innermost one knows the mechanism. A collective stays a collective.
        kind = found.kind if found.kind in ("collective", "p2p") else (row.kind or found.kind)
        same_call = row.kind == found.kind and row.op is not None
        found = Known(
            kind=kind,
            need=row.need or found.need,
            op=row.op if same_call else (found.op or row.op),
            peers=row.peers or found.peers,
            polls=row.polls or found.polls,
            frame=found.frame,
            caller=caller if same_call else found.caller,
        )
    return found


def telling_frame(stack: PyStack) -> Frame | None:
    """The frame a person should look at: the innermost one that is not plumbing, else the innermost of all."""
    for frame in stack.frames:
        if not frame.native and not frame.file.startswith("<") and not frame.file.endswith(PLUMBING):
            return frame
    return stack.frames[0] if stack.frames else None
