"""vLLM: process titles, flags and the frames in which its processes wait (0.20 to 0.33, V1 engine)."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.engines.base import EngineSpec, Recognised, Sizes, arguments, flag, rank_of_title, whole
from gpudiag.engines.frames import WaitFrame
from gpudiag.model.process import Process
from gpudiag.model.server import Rank

_TITLE: Final = re.compile(r"^(?P<prefix>[A-Za-z][\w.-]{0,40})::(?P<role>EngineCore|Worker|APIServer|DPCoordinator)(?P<rest>\S*)")
"""The prefix is VLLM unless VLLM_PROCESS_NAME_PREFIX says otherwise (vllm/utils/system_utils.py, 0.24)."""
_ROLES = {"EngineCore": "engine-core", "Worker": "worker", "APIServer": "frontend", "DPCoordinator": "coordinator"}


def recognise(process: Process) -> Recognised | None:
    """Titles are `VLLM::EngineCore[_DPn]`, `VLLM::Worker[_DPn][_PPn][_TPn][_EPn]`, `VLLM::APIServer_n` (servers.md 1).

    Every worker is plain `VLLM::Worker` until the process groups are made (v1/executor/multiproc_executor.py,
    WorkerProc.setup_proc_title_and_log_prefix, 0.32), and stays so where it is the only one.
    """
    match = _TITLE.match(process.title)
    if match:
        role = _ROLES[match["role"]]
        rank = rank_of_title(match["rest"]) if role == "worker" else Rank()
        if role == "worker" and rank == Rank():
            return Recognised(engine="vllm", role=role, rank=Rank(tp=0), numbered=False)
        return Recognised(engine="vllm", role=role, rank=rank)
    words = arguments(process)[:8]
    if any(
        w in ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main", "vllm.entrypoints.api_server") for w in words
    ):
        return Recognised(engine="vllm", role="frontend", root=True)
    if any(w == "vllm" or w.endswith("/vllm") for w in words[:3]) and "serve" in words[:4]:
        return Recognised(engine="vllm", role="frontend", root=True)
    return None


def sizes(root: Process) -> Sizes:
    words = arguments(root)
    if not words:
        return Sizes()
    replica = whole(flag(words, "--tensor-parallel-size", "-tp")) * whole(flag(words, "--pipeline-parallel-size", "-pp"))
    everywhere = whole(flag(words, "--data-parallel-size", "-dp"))
    here = whole(flag(words, "--data-parallel-size-local", "-dpl"), default=everywhere)
    alone = whole(flag(words, "--nnodes", "-n")) == 1 and flag(words, "--distributed-executor-backend") in (None, "mp", "uni")
    return Sizes(world=replica * everywhere, local=replica * here if alone else None)


_SHM: Final = "distributed/device_communicators/shm_broadcast.py"
_EXECUTOR: Final = "v1/executor/multiproc_executor.py"
_CORE: Final = "v1/engine/core.py"

WAIT_FRAMES: tuple[WaitFrame, ...] = (
    WaitFrame(file=_SHM, functions=("MessageQueue.dequeue", "MessageQueue.acquire_read"), kind="ipc"),
    WaitFrame(
        file=_SHM, functions=("MessageQueue.acquire_write", "MessageQueue.enqueue"), kind="ipc", need="reply", peers=("worker",)
    ),
    WaitFrame(file=_SHM, functions=("MessageQueue.wait_until_ready",), kind="ipc", need="reply", peers=("worker",)),
    WaitFrame(file=_EXECUTOR, functions=("worker_busy_loop",), kind="ipc", need="work", peers=("engine-core",)),
    WaitFrame(file=_EXECUTOR, functions=("get_response", "_wait_for_response"), kind="ipc", need="reply", peers=("worker",)),
    WaitFrame(file=_EXECUTOR, functions=("wait_for_ready",), kind="ipc", need="reply", peers=("worker", "starting")),
    WaitFrame(file=_CORE, functions=("_process_input_queue",), kind="event", need="work"),
    WaitFrame(file=_CORE, functions=("process_input_sockets", "process_output_sockets"), kind=None, need="work"),
    WaitFrame(
        file="v1/engine/utils.py",
        functions=("wait_for_engine_startup",),
        kind="ipc",
        need="reply",
        peers=("engine-core", "starting"),
    ),
    *(
        WaitFrame(
            file="distributed/device_communicators/cpu_communicator.py", functions=(op,), kind="collective", need="reply", op=op
        )
        for op in ("all_reduce", "all_gather", "gather", "dispatch", "combine")
    ),
    *(
        WaitFrame(
            file="vllm/distributed/parallel_state.py",
            functions=(f"GroupCoordinator.{op}",),
            kind="collective",
            need="reply",
            op=op,
        )
        for op in ("all_reduce", "all_gather", "reduce_scatter", "gather", "broadcast", "broadcast_tensor_dict", "barrier")
    ),
    *(
        WaitFrame(
            file="vllm/distributed/parallel_state.py", functions=(f"GroupCoordinator.{op}",), kind="p2p", need="reply", op=op
        )
        for op in ("send", "recv", "send_tensor_dict", "recv_tensor_dict", "send_object", "recv_object")
    ),
)

SPEC = EngineSpec(name="vllm", recognise=recognise, sizes=sizes, wait_frames=WAIT_FRAMES)
