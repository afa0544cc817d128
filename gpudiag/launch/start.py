"""Starts a server under a supervisor of its own, and stays with it as long as somebody watches."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from pathlib import Path
from typing import IO, Final, cast

import msgspec
from msgspec import Struct

from gpudiag.errors import GpudiagError, UsageError
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.own_process import command
from gpudiag.launch.run_directory import RunDirectory
from gpudiag.launch.supervisor import Request
from gpudiag.launch.supervisor_process import Begun
from gpudiag.model.run import LaunchPlan

BEGIN_S: Final = 30.0
"""So long the supervisor may take to start the server; on an idle machine it takes half a second."""
_ANSWER_BYTES: Final = 1 << 16


class Started(Struct, frozen=True, kw_only=True):
    """A server that runs, and who watches it."""

    run: Path
    supervisor_pid: int
    server_pid: int


def start(plan: LaunchPlan, options: SuperviseOptions) -> Started:
    """Start the server of a plan. Its supervisor lives on when this process ends.

    Raises UsageError where the run directory cannot be made or the program does not exist.
    """
    run = RunDirectory(Path(plan.run_directory))
    run.create(plan.directories)
    near, far = os.pipe()
    try:
        with open(run.supervisor_log, "ab", opener=_private) as errors:
            child = subprocess.Popen(
                command("gpudiag.launch.supervisor_process", str(far)),
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                pass_fds=(far,),
                start_new_session=True,
            )
        os.close(far)
        far = -1
        # Over a pipe and not over a file: the plan may hold keys.
        begun = _begun(child, msgspec.json.encode(Request(plan=plan, options=options)), near, run)
    finally:
        os.close(near)
        if far >= 0:
            os.close(far)
    if begun.server_pid is None:
        child.wait()
        raise UsageError(begun.error, help=begun.help)
    # It is no child to be waited for: whoever started it may end before it.
    child.returncode = 0
    return Started(run=run.path, supervisor_pid=child.pid, server_pid=begun.server_pid)


def _begun(child: subprocess.Popen[bytes], request: bytes, answer: int, run: RunDirectory) -> Begun:
    with contextlib.suppress(BrokenPipeError), cast("IO[bytes]", child.stdin) as to:
        to.write(request)
    if not select.select([answer], [], [], BEGIN_S)[0]:
        raise GpudiagError(f"the supervisor (pid {child.pid}) did not start the server within {BEGIN_S:g} s", help="uptime")
    said = os.read(answer, _ANSWER_BYTES)
    if not said:
        raise GpudiagError("the supervisor ended before it started the server", help=f"cat {run.supervisor_log}")
    return msgspec.json.decode(said, type=Begun)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
