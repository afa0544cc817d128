"""Starts the server as its plan says, and writes down as what."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Final

import msgspec

from gpudiag import __version__
from gpudiag.errors import UsageError
from gpudiag.launch.run_directory import EVENTS_LOG, SERVER_LOG
from gpudiag.launch.secrets import for_display
from gpudiag.model.run import LaunchPlan, RunManifest
from gpudiag.session.secret import SECRET_VARIABLE, masked, secret_arguments

HIDDEN: Final = "<secret>"
_TOLD: Final = re.compile(
    r"(?:CUDA|NVIDIA|NCCL|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|VLLM|SGLANG|SGL|FLASHINFER|HF|TRANSFORMERS|OMP|MKL|UCX|NVSHMEM"
    r"|PYTHON|LD)_?[A-Z0-9_]*|PATH|VIRTUAL_ENV|CONDA_PREFIX|TMPDIR|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT)"
)
"""Variables of ours that shape a server; the rest of the environment is nobody's business."""


def environment_of(plan: LaunchPlan) -> dict[str, str]:
    """What the server gets: ours, and what the plan says."""
    return {**os.environ, **dict(plan.environment)}


def start(plan: LaunchPlan, log: Path) -> subprocess.Popen[bytes]:
    """Start the server in a process group of its own. Raises UsageError if there is no such program.

    Its standard output and error are the log file itself: no pipe that could fill up or break, and nothing is lost when
    its supervisor is.
    """
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            plan.argv, env=environment_of(plan), stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, process_group=0
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot start {plan.argv[0]}: {reason}", help="gpudiag launch --python PYTHON_OF_THE_ENGINE") from error
    finally:
        os.close(handle)


def manifest_of(plan: LaunchPlan, *, started_at: float | None = None, server_pid: int | None = None) -> RunManifest:
    """What is written down about this start. Keys, tokens and passwords are not."""
    told = {name: value for name, value in environment_of(plan).items() if _TOLD.fullmatch(name)}
    return RunManifest(
        run_id=plan.run_id,
        gpudiag=__version__,
        host=platform.node(),
        started_at=time.time() if started_at is None else started_at,
        supervisor_pid=os.getpid(),
        server_pid=server_pid,
        plan=msgspec.structs.replace(
            plan,
            argv=tuple(_without_secrets(list(plan.argv))),
            environment=tuple((name, _value(name, value)) for name, value in plan.environment),
            settings=for_display(plan).settings,
        ),
        log=SERVER_LOG,
        events=EVENTS_LOG,
        environment=tuple((name, _value(name, told[name])) for name in sorted(told)),
        versions=tuple(
            (name, value)
            for name, value in ((plan.engine, plan.version or ""), ("python", plan.python), ("kernel", platform.release()))
            if value
        ),
        pipes=tuple(p for p in (plan.flight_pipe, plan.kernel_dump_pipe) if p),
        ras_address=plan.ras_address,
    )


def _without_secrets(words: list[str]) -> list[str]:
    hidden = secret_arguments(words)
    return [HIDDEN if index in hidden else masked(word, HIDDEN) for index, word in enumerate(words)]


def _value(name: str, value: str) -> str:
    return HIDDEN if value and SECRET_VARIABLE.search(name) else masked(value, HIDDEN)
