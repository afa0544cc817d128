"""The running half of `gpudiag launch`: from a plan to a server that is watched until it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpudiag.errors import ExitCode
from gpudiag.launch.follow import follow
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.run_directory import RunDirectory
from gpudiag.launch.start import start
from gpudiag.model.run import ENDED, LaunchPlan

Talk = Callable[[str], None]
Screen = Callable[[Path], None]
"""Shows a run directory until the person leaves."""


def supervise(plan: LaunchPlan, options: SuperviseOptions, *, say: Talk, show: Talk, screen: Screen | None = None) -> int:
    """Start a server and stay with it; the exit code. Raises UsageError if it cannot be started.

    Without `screen` it is followed in lines of text. Whoever leaves a screen leaves the server to its supervisor.
    """
    started = start(plan, options)
    say(f"server pid {started.server_pid}, run directory {started.run}")
    if screen is None:
        return follow(started, say=say, show=show, detach=options.detach)
    screen(started.run)
    progress = RunDirectory(started.run).progress()
    if progress is None or progress.state in ENDED:
        return follow(started, say=say, show=show, detach=False)
    say(f"the server runs on; come back with: gpudiag attach {started.server_pid}; end it with: kill {started.supervisor_pid}")
    return ExitCode.OK
