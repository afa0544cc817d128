"""The running half of `gpudiag launch`: from a plan to a server that is watched until it ends."""

from __future__ import annotations

from collections.abc import Callable

from gpudiag.launch.follow import follow
from gpudiag.launch.options import SuperviseOptions
from gpudiag.launch.start import start
from gpudiag.model.run import LaunchPlan

EXIT_CODES = """\
0    the server was ready and was ended on request; with --detach: it is ready
1    it crashed, was killed or ended while it hung, and the report says why
2    the start was refused: a flag, a path, a check before the start
4    it ended, and nothing that is left says why
130  it was ended on request before it was ready
"""
"""What the exit codes of `gpudiag launch` mean, for --help."""


def supervise(plan: LaunchPlan, options: SuperviseOptions, *, say: Callable[[str], None], show: Callable[[str], None]) -> int:
    """Start a server and follow it in lines of text; the exit code. Raises UsageError if it cannot be started."""
    started = start(plan, options)
    say(f"server pid {started.server_pid}, run directory {started.run}")
    return follow(started, say=say, show=show, detach=options.detach)
