"""Evidence that can only be had if it was asked for before the start. On by default, each part with its switch.

What each costs and gives: the flight recorder answered 6 s after it was asked on two hung H200s (torch 2.11), NCCL's memory
and RAS 1 to 3 ms. The core dump of the kernels ends a rank whose kernel is resident, and is armed on request only.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from gpudiag.launch.building import Draft
from gpudiag.launch.request import Host, Request
from gpudiag.model.flags import FlagTable
from gpudiag.model.run import Setting

SOURCE: Final = "arming"
LIMIT_S: Final = 3600
"""How long a step may take before an engine ends itself: an hour leaves time to look, and still ends what nobody looks at."""
READY_S: Final = 7200
_BUFFER: Final = "2000"
"""Records of collectives a rank; torch's own default from 2.9 on (FlightRecorder.hpp), 0 before."""
_SUBSYSTEMS: Final = "INIT,BOOTSTRAP,ENV,NET,GRAPH,REG"
_NEW_RECORDER: Final = "TORCH_FR_BUFFER_SIZE"
_OLD_RECORDER: Final = "TORCH_NCCL_TRACE_BUFFER_SIZE"

ASKED_ABOUT: Final = ("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_RINGBUFFER_WARNING_INTERVAL")
"""Variables that are only set for an engine that knows them: vLLM warns of others."""


class Armed(Struct, frozen=True, kw_only=True):
    """Where what was armed is found later. Fields of a LaunchPlan."""

    ras_address: str | None = None
    flight_pipe: str | None = None
    flight_dump: str | None = None
    kernel_dump_pipe: str | None = None


def arm(draft: Draft, request: Request, host: Host) -> Armed:
    """Everything that is not switched off, in the order of PARTS."""
    for name, (_, add) in PARTS.items():
        if name in request.not_armed:
            continue
        if name in OF_NCCL and not host.has_gpu:
            draft.settings.append(
                Setting(name=name, value="", why="left out: no GPU here, nothing goes through NCCL", source=SOURCE)
            )
            continue
        add(draft, request, host)
    if request.kernel_dump:
        _kernel_dump(draft, request, host)
    environment = {**draft.environment, **{k: v for k, v in draft.variables.items() if k not in draft.environment}}
    return Armed(
        ras_address=environment.get("NCCL_RAS_ADDR"),
        flight_pipe=environment.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
        flight_dump=environment.get("TORCH_FR_DUMP_TEMP_FILE") or environment.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        kernel_dump_pipe=environment.get("CUDA_COREDUMP_PIPE") if request.kernel_dump else None,
    )


def _switch(name: str) -> str:
    return f"--no-arm {name}"


def _flight_recorder(draft: Draft, request: Request, host: Host) -> None:  # noqa: ARG001  one signature for all parts
    switch = _switch("flight-recorder")
    stem = os.path.join(host.run_directory, "flight", "")
    draft.directories.append("flight")
    for name in _buffer_names(draft.table):
        draft.variable(name, _BUFFER, "torch keeps the last collectives of every rank", SOURCE, switch=switch)
    for name in _dump_names(draft.table):
        draft.variable(name, f"{stem}rank_", "where a rank writes them when it is asked", SOURCE, switch=switch)
    pipe = "each rank listens on a pipe, so that it can be asked while it hangs"
    draft.variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", f"{stem}pipe_", pipe, SOURCE, switch=switch)
    draft.variable(
        "TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "torch's own watchdog writes them before it ends a rank", SOURCE, switch=switch
    )
    draft.variable("TORCH_NCCL_ENABLE_MONITORING", "1", "starts the thread that listens on the pipe", SOURCE, switch=switch)


def _buffer_names(table: FlagTable | None) -> tuple[str, ...]:
    """The name that the installed torch reads; both where its headers do not say. A superseded name costs a warning."""
    known = table.recorder if table is not None else ()
    if _NEW_RECORDER in known:
        return (_NEW_RECORDER,)
    return (_OLD_RECORDER,) if _OLD_RECORDER in known else (_NEW_RECORDER, _OLD_RECORDER)


def _dump_names(table: FlagTable | None) -> tuple[str, ...]:
    """Torch 2.9 renamed both together."""
    new, old = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
    buffers = _buffer_names(table)
    return (new,) if buffers == (_NEW_RECORDER,) else (old,) if buffers == (_OLD_RECORDER,) else (new, old)


def _nccl_ras(draft: Draft, request: Request, host: Host) -> None:  # noqa: ARG001
    draft.variable(
        "NCCL_RAS_ADDR",
        f"localhost:{host.ras_port}",
        "NCCL's service on a port of its own: on the usual one, 28028, the first server on a host answers for all",
        SOURCE,
        switch=_switch("nccl-ras"),
    )


def _nccl_log(draft: Draft, request: Request, host: Host) -> None:  # noqa: ARG001
    switch = _switch("nccl-log")
    if draft.variables.get("NCCL_DEBUG"):
        draft.variable("NCCL_DEBUG", "INFO", "and its output stays where you expect it", SOURCE)
        return
    draft.directories.append("nccl")
    draft.variable(
        "NCCL_DEBUG", "INFO", "how NCCL connected the GPUs, rank by rank; a few hundred lines at start", SOURCE, switch=switch
    )
    draft.variable("NCCL_DEBUG_SUBSYS", _SUBSYSTEMS, "set-up only: nothing is written a collective", SOURCE, switch=switch)
    place = os.path.join(host.run_directory, "nccl", "%h.%p.log")
    draft.variable("NCCL_DEBUG_FILE", place, "one file a process, not between the server's lines", SOURCE, switch=switch)


def _faulthandler(draft: Draft, request: Request, host: Host) -> None:  # noqa: ARG001
    switch = _switch("faulthandler")
    draft.variable("PYTHONFAULTHANDLER", "1", "a crash in native code leaves the Python stack in the log", SOURCE, switch=switch)


def _log(draft: Draft, request: Request, host: Host) -> None:  # noqa: ARG001
    switch = _switch("log")
    draft.variable("PYTHONUNBUFFERED", "1", "the last lines before a crash reach the log", SOURCE, switch=switch)


def _metrics(draft: Draft, request: Request, host: Host) -> None:  # noqa: ARG001
    if request.engine == "sglang":
        why = "tokens a second, queue and acceptance can be read while it serves; vLLM has them without asking"
        draft.option(("--enable-metrics",), None, why, SOURCE, switch=_switch("metrics"), required=False)


def _watchdogs(draft: Draft, request: Request, host: Host) -> None:
    switch = _switch("watchdogs")
    why = f"the engine ends itself {LIMIT_S} s after a step got stuck, not 300 s: time to look (GPD703)"
    if request.engine == "sglang":
        draft.option(("--watchdog-timeout",), str(LIMIT_S), why, SOURCE, switch=switch, required=False)
        return
    known = draft.table.variables if draft.table is not None else ()
    if "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS" in known:
        draft.variable("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", str(LIMIT_S), why, SOURCE, switch=switch)
    if "VLLM_ENGINE_READY_TIMEOUT_S" in known:
        slow = f"a start may take {READY_S // 3600} h, not 10 min: weights from slow storage, kernels to compile"
        draft.variable("VLLM_ENGINE_READY_TIMEOUT_S", str(READY_S), slow, SOURCE, switch=switch)
    if "VLLM_RINGBUFFER_WARNING_INTERVAL" in known:
        early = "vLLM says in its log after 15 s, not 60 s, that a queue between its processes does not move"
        draft.variable("VLLM_RINGBUFFER_WARNING_INTERVAL", "15", early, SOURCE, switch=switch)
    if draft.table is not None and draft.table.first("--watchdog-config"):
        draft.directories.append("stacks")
        place = json.dumps({"dump_dir": os.path.join(host.run_directory, "stacks")})
        draft.option(
            ("--watchdog-config",), place, "vLLM writes its own stacks once a stall, and ends nothing", SOURCE, switch=switch
        )


def _path(draft: Draft, request: Request, host: Host) -> None:  # noqa: ARG001
    """The server's tools on PATH, as activating its environment would: ninja for FlashInfer, py-spy for SGLang's dumps."""
    before = draft.variables.get("PATH", os.defpath)
    own = os.path.dirname(request.python)
    places = before.split(os.pathsep)
    if own and own not in places:
        places.insert(0, own)
    # py-spy came with gpudiag; it goes last, so that nothing else there hides a tool of the server.
    ours = os.path.join(os.path.dirname(sys.executable), "py-spy")
    if shutil.which("py-spy", path=os.pathsep.join(places)) is None and os.access(ours, os.X_OK):
        places.append(os.path.dirname(ours))
    if places != before.split(os.pathsep):
        why = "the server finds the tools of its own environment (ninja, py-spy), as if that were activated"
        draft.replace_variable("PATH", os.pathsep.join(places), why, SOURCE, switch=_switch("path"))


def _kernel_dump(draft: Draft, request: Request, host: Host) -> None:  # noqa: ARG001
    draft.directories.append("kernels")
    place = os.path.join(host.run_directory, "kernels")
    asked = "--arm-kernel-dump"
    why = "a CUDA core dump can be asked for; it names the kernel that hangs, and ends the rank that runs it"
    draft.variable("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1", why, asked)
    draft.variable("CUDA_COREDUMP_PIPE", os.path.join(place, "pipe.%h.%p"), "where it is asked for", asked)
    draft.variable("CUDA_COREDUMP_FILE", os.path.join(place, "core.%h.%p"), "where it is written", asked)
    draft.variable(
        "CUDA_COREDUMP_GENERATION_FLAGS", KERNEL_DUMP_FLAGS, "stacks and names only: 110 MB and 4 s, not the memory", asked
    )


KERNEL_DUMP_FLAGS: Final = (
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory,skip_abort"
)

_Part = Callable[[Draft, Request, Host], None]

PARTS: Final[dict[str, tuple[str, _Part]]] = {
    "flight-recorder": ("torch's record of the last collectives, and a pipe to ask for it", _flight_recorder),
    "nccl-ras": ("NCCL's service on a port of its own", _nccl_ras),
    "nccl-log": ("NCCL's log in files", _nccl_log),
    "faulthandler": ("Python stacks of native crashes", _faulthandler),
    "log": ("unbuffered output", _log),
    "metrics": ("SGLang's metrics", _metrics),
    "watchdogs": ("limits of the engine that would end a hung server before it was looked at", _watchdogs),
    "path": ("the server's own tools on PATH", _path),
}
"""What is armed by default, by the name that `--no-arm` takes."""

OF_NCCL: Final = frozenset({"flight-recorder", "nccl-ras", "nccl-log"})
