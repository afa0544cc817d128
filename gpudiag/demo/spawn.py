"""Start the demo's processes and end them again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from gpudiag.demo.plan import Names, Plan
from gpudiag.demo.procstate import GONE, session_members, state_of
from gpudiag.demo.reports import DemoError

FAULT_REQUEST = 2
"""The first request is answered, so that the server is up; it hangs on the second."""
END_LIMIT_S = 10.0
ROOT_LIMIT_S = 2.0


class Stage(Struct, frozen=True, kw_only=True):
    """Where a run takes place: its directory, the package with its processes, the interpreter and its environment."""

    home: Path
    scripts: Path
    python: str
    environment: dict[str, str]
    names: Names

    def spawn(
        self, title: str, role: str, *arguments: str, fds: tuple[int, ...] = (), log: Path | None = None, session: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start one process that is called `title`; its output goes to `log` or nowhere."""
        with open(log or os.devnull, "wb") as output:
            return subprocess.Popen(
                [title, "-m", self.scripts.name, role, str(self.home), *arguments],
                executable=self.python,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=fds,
                start_new_session=session,
            )

    @property
    def log(self) -> Path:
        return self.home / "server.log"


def environment_for(scripts: Path, python: str) -> dict[str, str]:
    """Environment in which `python` starts under an argv[0] that is no path and finds the package `scripts`.

    CPython looks for its library beside argv[0] and falls back on a compiled-in prefix, which is wrong in a relocated
    build, so it is told.
    """
    if python == sys.executable:
        home = f"{sys.base_prefix}:{sys.base_exec_prefix}"
    else:
        show = "import sys; print(f'{sys.base_prefix}:{sys.base_exec_prefix}', end='')"
        home = subprocess.run([python, "-c", show], stdout=subprocess.PIPE, check=True, text=True).stdout
    strange = ("PYTHON", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    return kept | {"PYTHONHOME": home, "PYTHONPATH": str(scripts.parent), "PYTHONSAFEPATH": "1"}


def write_settings(plan: Plan, stage: Stage, lifeline_fd: int, report_fd: int) -> None:
    """Leave in the run's directory what all its processes need to know."""
    settings = {
        "directory": str(stage.home),
        "python": stage.python,
        "prefix": stage.names.prefix,
        "lock_name": stage.names.lock,
        "kernel_name": stage.names.kernel,
        "scenario": plan.scenario.name,
        "fault_request": FAULT_REQUEST,
        "lifeline_fd": lifeline_fd,
        "report_fd": report_fd,
    }
    drawn = {field: getattr(plan, field) for field in plan.__struct_fields__ if field not in ("scenario", "seed")}
    (stage.home / "settings.json").write_bytes(msgspec.json.encode(settings | drawn))


def shared_lock(home: Path) -> Path | None:
    """The lock file that ranks of a run share, once somebody has taken it."""
    return next((path for path in (home / "cache" / "shared").rglob("*") if path.is_file()), None)


def leave_stale_lock(stage: Stage, lifeline_fd: int, limit_s: float) -> None:
    """Have a builder take the lock of the kernel that the victim will want, and kill it."""
    builder = stage.spawn("python", "builder", "shared", fds=(lifeline_fd,))
    deadline = time.monotonic() + limit_s
    try:
        while shared_lock(stage.home) is None:
            if time.monotonic() > deadline or builder.poll() is not None:
                raise DemoError("the demo's builder did not take its lock")
            time.sleep(0.005)
    finally:
        builder.kill()
        builder.wait()


def end_session(root: subprocess.Popen[bytes]) -> None:
    """Wait until the root has ended its family; kill what is left of its session if it cannot.

    The root is reaped last, so that its number stays its own until then.
    """
    deadline = time.monotonic() + END_LIMIT_S
    while time.monotonic() < deadline:
        members = [pid for pid in session_members(root.pid) if state_of(pid) not in GONE]
        if not members:
            break
        if root.pid not in members or time.monotonic() > deadline - END_LIMIT_S + ROOT_LIMIT_S:
            for pid in members:
                _kill(pid)
        time.sleep(0.005)
    root.wait()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
