"""The foreground of `gpudiag launch` as a process of its own: what it says, and the run that it belongs to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpudiag.collect.family import descendants
from gpudiag.launch.run_directory import RunDirectory
from gpudiag.launch.start import Started
from gpudiag.model.run import LaunchPlan
from tests.launch.launching import LIMIT_S, Launched, alive
from tests.support.processes import wait_until

FOREGROUND = """
import signal
import sys
import msgspec
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.supervise import supervise
from gpudiag.model.run import LaunchPlan

# Whoever runs the tests may have started them under nohup.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
plan = msgspec.json.decode(sys.argv[1], type=LaunchPlan)
options = SuperviseOptions(tui=False, detach=sys.argv[2] == "detach")
talk = lambda line: print(line, file=sys.stderr, flush=True)
screen = (lambda run: talk(f"a screen on {run}")) if sys.argv[2] == "screen" else None
sys.exit(supervise(plan, options, say=talk, show=lambda text: print(text, flush=True), screen=screen))
"""


class Foreground:
    """A started foreground, what it said, and the run that it belongs to."""

    def __init__(self, plan: LaunchPlan, process: subprocess.Popen[str]) -> None:
        self.plan = plan
        self.process = process

    @property
    def run(self) -> Launched:
        manifest = RunDirectory(Path(self.plan.run_directory)).manifest()
        assert manifest is not None
        assert manifest.server_pid is not None
        run = Path(self.plan.run_directory)
        return Launched(Started(run=run, supervisor_pid=manifest.supervisor_pid, server_pid=manifest.server_pid), self.plan)

    def until_ready(self) -> Launched:
        directory = RunDirectory(Path(self.plan.run_directory))
        wait_until(lambda: (p := directory.progress()) is not None and p.state == "serving", "ready", LIMIT_S)
        return self.run

    def end(self) -> tuple[int, str, str]:
        """Exit code, what went to stdout, what went to stderr."""
        out, talk = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, talk


@contextmanager
def foreground(plan: LaunchPlan, mode: str = "stay") -> Iterator[Foreground]:
    process = subprocess.Popen(
        [sys.executable, "-c", FOREGROUND, msgspec.json.encode(plan).decode(), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    it = Foreground(plan, process)
    try:
        yield it
    finally:
        manifest = RunDirectory(Path(plan.run_directory)).manifest()
        roots = [process.pid, *([manifest.supervisor_pid, manifest.server_pid or 0] if manifest else [])]
        for pid in descendants([r for r in roots if r]):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
