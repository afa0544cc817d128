"""SGLang: process titles, flags and the frames in which its processes wait (0.5.11 to 0.5.23)."""

from __future__ import annotations

from gpudiag.engines.base import EngineSpec, Recognised, Sizes, arguments, flag, rank_of_title, whole
from gpudiag.engines.frames import WaitFrame
from gpudiag.model.process import Process
from gpudiag.model.server import Rank

_ROLES = {
    "scheduler": "scheduler",
    "detokenizer": "detokenizer",
    "data_parallel_controller": "controller",
    "tokenizer_worker": "tokenizer",
}


def recognise(process: Process) -> Recognised | None:
    """Titles are `sglang::scheduler[_DPn][_PPn][_TPn][_EPn]`, plain `sglang::scheduler` with one rank (servers.md 2)."""
    title = process.title
    if title.startswith("sglang::"):
        word = title.removeprefix("sglang::").split(":")[0].split(" ")[0]
        name = next((n for n in _ROLES if word.startswith(n)), None)
        role = _ROLES.get(name or "", "helper")
        rank = rank_of_title(word) if role == "scheduler" else Rank()
        if role == "scheduler" and rank == Rank():
            return Recognised(engine="sglang", role=role, rank=Rank(tp=0), numbered=False)
        return Recognised(engine="sglang", role=role, rank=rank)
    words = arguments(process)[:8]
    if any(w == "sglang.launch_server" or w.endswith("/sglang/launch_server.py") for w in words):
        return Recognised(engine="sglang", role="frontend", root=True)
    if len(words) > 1 and any(w.endswith("/sglang") or w == "sglang" for w in words[:3]) and "serve" in words[:4]:
        return Recognised(engine="sglang", role="frontend", root=True)
    return None


def sizes(root: Process) -> Sizes:
    words = arguments(root)
    if not words:
        return Sizes()
    tp = whole(flag(words, "--tp", "--tp-size", "--tensor-parallel-size"))
    pp = whole(flag(words, "--pp", "--pp-size", "--pipeline-parallel-size"))
    nodes = whole(flag(words, "--nnodes"))
    return Sizes(world=tp * pp, local=tp * pp if nodes == 1 else None)


WAIT_FRAMES: tuple[WaitFrame, ...] = (
    WaitFrame(
        file="request_receiver.py",
        functions=("recv_requests", "_broadcast_reqs_across_ranks", "_recv_and_broadcast"),
        kind=None,
        need="work",
        polls=True,
    ),
    WaitFrame(file="sglang/srt/managers/scheduler.py", functions=("recv_requests",), kind=None, need="work", polls=True),
    WaitFrame(file="detokenizer_manager.py", functions=("event_loop",), kind="ipc", need="work", peers=("scheduler",)),
    WaitFrame(file="data_parallel_controller.py", functions=("event_loop",), kind="ipc", need="work", peers=("frontend",)),
    WaitFrame(file="http_server.py", functions=("_wait_and_warmup", "_execute_server_warmup"), kind="ipc", need="reply"),
    WaitFrame(
        file="sglang/srt/entrypoints/engine.py",
        functions=("_launch_subprocesses", "_wait_for_scheduler_ready", "_launch_scheduler_processes", "wait_for_ready"),
        kind="ipc",
        need="reply",
        peers=("scheduler", "controller"),
    ),
)

SPEC = EngineSpec(name="sglang", recognise=recognise, sizes=sizes, wait_frames=WAIT_FRAMES)
