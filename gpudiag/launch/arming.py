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

from gpudiag.launch.builder import PlanBuilder
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


def arm(builder: PlanBuilder, request: Request, host: Host) -> Armed:
    """Everything that is not switched off, in the order of PARTS."""
    for name, (_, add) in PARTS.items():
        if name in request.not_armed:
            continue
        if name in OF_NCCL and not host.has_gpu:
            builder.settings.append(
                Setting(name=name, value="", why="left out: no GPU here, nothing goes through NCCL", source=SOURCE)
            )
            continue
        add(builder, request, host)
    if request.kernel_dump:
        _kernel_dump(builder, request, host)
    environment = {**builder.environment, **{k: v for k, v in builder.variables.items() if k not in builder.environment}}
    return Armed(
        ras_address=environment.get("NCCL_RAS_ADDR"),
        flight_pipe=environment.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
        flight_dump=environment.get("TORCH_FR_DUMP_TEMP_FILE") or environment.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        kernel_dump_pipe=environment.get("CUDA_COREDUMP_PIPE") if request.kernel_dump else None,
    )


def _switch(name: str) -> str:
    return f"--no-arm {name}"


def _flight_recorder(builder: PlanBuilder, request: Request, host: Host) -> None:  # noqa: ARG001  one signature for all parts
    switch = _switch("flight-recorder")
    stem = os.path.join(host.run_directory, "flight", "")
    builder.directories.append("flight")
    for name in _buffer_names(builder.table):
        builder.variable(name, _BUFFER, "torch keeps the last collectives of every rank", SOURCE, switch=switch)
    for name in _dump_names(builder.table):
        builder.variable(name, f"{stem}rank_", "where a rank writes them when it is asked", SOURCE, switch=switch)
    pipe = "each rank listens on a pipe, so that it can be asked while it hangs"
    builder.variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", f"{stem}pipe_", pipe, SOURCE, switch=switch)
    builder.variable(
        "TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "torch's own watchdog writes them before it ends a rank", SOURCE, switch=switch
    )
    builder.variable("TORCH_NCCL_ENABLE_MONITORING", "1", "starts the thread that listens on the pipe", SOURCE, switch=switch)


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


def _nccl_ras(builder: PlanBuilder, request: Request, host: Host) -> None:  # noqa: ARG001
    builder.variable(
        "NCCL_RAS_ADDR",
        f"localhost:{host.ras_port}",
        "NCCL's service on a port of its own: on the usual one, 28028, the first server on a host answers for all",
        SOURCE,
        switch=_switch("nccl-ras"),
    )


def _nccl_log(builder: PlanBuilder, request: Request, host: Host) -> None:  # noqa: ARG001
    switch = _switch("nccl-log")
    if builder.variables.get("NCCL_DEBUG"):
        builder.variable("NCCL_DEBUG", "INFO", "and its output stays where you expect it", SOURCE)
        return
    builder.directories.append("nccl")
    builder.variable(
        "NCCL_DEBUG", "INFO", "how NCCL connected the GPUs, rank by rank; a few hundred lines at start", SOURCE, switch=switch
    )
    builder.variable("NCCL_DEBUG_SUBSYS", _SUBSYSTEMS, "set-up only: nothing is written a collective", SOURCE, switch=switch)
    place = os.path.join(host.run_directory, "nccl", "%h.%p.log")
    builder.variable("NCCL_DEBUG_FILE", place, "one file a process, not between the server's lines", SOURCE, switch=switch)


def _faulthandler(builder: PlanBuilder, request: Request, host: Host) -> None:  # noqa: ARG001
    switch = _switch("faulthandler")
    builder.variable(
        "PYTHONFAULTHANDLER", "1", "a crash in native code leaves the Python stack in the log", SOURCE, switch=switch
    )


def _log(builder: PlanBuilder, request: Request, host: Host) -> None:  # noqa: ARG001
    switch = _switch("log")
    builder.variable("PYTHONUNBUFFERED", "1", "the last lines before a crash reach the log", SOURCE, switch=switch)


def _metrics(builder: PlanBuilder, request: Request, host: Host) -> None:  # noqa: ARG001
    if request.engine == "sglang":
        why = "tokens a second, queue and acceptance can be read while it serves; vLLM has them without asking"
        builder.option(("--enable-metrics",), None, why, SOURCE, switch=_switch("metrics"), required=False)


def _watchdogs(builder: PlanBuilder, request: Request, host: Host) -> None:
    switch = _switch("watchdogs")
    why = f"the engine ends itself {LIMIT_S} s after a step got stuck, not 300 s: time to look (GPD703)"
    if request.engine == "sglang":
        builder.option(("--watchdog-timeout",), str(LIMIT_S), why, SOURCE, switch=switch, required=False)
        return
    known = builder.table.variables if builder.table is not None else ()
    if "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS" in known:
        builder.variable("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", str(LIMIT_S), why, SOURCE, switch=switch)
    if "VLLM_ENGINE_READY_TIMEOUT_S" in known:
        slow = f"a start may take {READY_S // 3600} h, not 10 min: weights from slow storage, kernels to compile"
        builder.variable("VLLM_ENGINE_READY_TIMEOUT_S", str(READY_S), slow, SOURCE, switch=switch)
    if "VLLM_RINGBUFFER_WARNING_INTERVAL" in known:
        early = "vLLM says in its log after 15 s, not 60 s, that a queue between its processes does not move"
        builder.variable("VLLM_RINGBUFFER_WARNING_INTERVAL", "15", early, SOURCE, switch=switch)
    if builder.table is not None and builder.table.first("--watchdog-config"):
        builder.directories.append("stacks")
        place = json.dumps({"dump_dir": os.path.join(host.run_directory, "stacks")})
        builder.option(
            ("--watchdog-config",), place, "vLLM writes its own stacks once a stall, and ends nothing", SOURCE, switch=switch
        )


def _path(builder: PlanBuilder, request: Request, host: Host) -> None:  # noqa: ARG001
    """The server's tools on PATH, as activating its environment would: ninja for FlashInfer, py-spy for SGLang's dumps."""
    before = builder.variables.get("PATH", os.defpath)
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
        builder.replace_variable("PATH", os.pathsep.join(places), why, SOURCE, switch=_switch("path"))


def _kernel_dump(builder: PlanBuilder, request: Request, host: Host) -> None:  # noqa: ARG001
    builder.directories.append("kernels")
    place = os.path.join(host.run_directory, "kernels")
    asked = "--arm-kernel-dump"
    why = "a CUDA core dump can be asked for; it names the kernel that hangs, and ends the rank that runs it"
    builder.variable("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1", why, asked)
    builder.variable("CUDA_COREDUMP_PIPE", os.path.join(place, "pipe.%h.%p"), "where it is asked for", asked)
    builder.variable("CUDA_COREDUMP_FILE", os.path.join(place, "core.%h.%p"), "where it is written", asked)
    builder.variable(
        "CUDA_COREDUMP_GENERATION_FLAGS", KERNEL_DUMP_FLAGS, "stacks and names only: 110 MB and 4 s, not the memory", asked
    )


KERNEL_DUMP_FLAGS: Final = (
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory,skip_abort"
)

_Part = Callable[[PlanBuilder, Request, Host], None]

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
