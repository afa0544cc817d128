"""Runs one py-spy that stops its target, and leaves nothing stopped whatever happens to gpudiag.

`python -m gpudiag.collect.tracer PID -- COMMAND...` ends COMMAND when stdin does (gpudiag was killed or gave up), waits
until the kernel has let go of the target, and continues it only if it ran before and was left in state T.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

from gpudiag.collect import procfs
from gpudiag.collect.parent_death import dying_with_me
from gpudiag.model.process import STOPPED

_SETTLE_S = 2.0
_POLL_S = 0.005
_SIGNALS_AT_ONCE = 64


def main() -> None:
    """Exit status of the command, or 128 + SIGKILL if it was ended."""
    pid = int(sys.argv[1])
    command = sys.argv[sys.argv.index("--") + 1 :]
    before = _state(pid)
    wakened = _child_signals()
    # Safe here: this process has one thread.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=dying_with_me())  # noqa: PLW1509
    _wait_or_kill(child, wakened)
    if before is not None and before[0] not in STOPPED:
        _let_go(pid, before[1])
    sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)


def _child_signals() -> int:
    """A descriptor that is readable once SIGCHLD came. A pidfd would do, but filters of containers deny it."""
    wakened, waken = os.pipe()
    os.set_blocking(waken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waken, warn_on_full_buffer=False)
    return wakened


def _wait_or_kill(child: subprocess.Popen[bytes], wakened: int) -> None:
    """Wait for the child; kill it if stdin ends first."""
    given_up = sys.stdin.fileno()
    poll = select.poll()
    poll.register(wakened, select.POLLIN)
    poll.register(given_up, select.POLLIN)
    while child.poll() is None:
        ready = [fd for fd, _ in poll.poll()]
        if given_up in ready:
            child.kill()
            child.wait()
        else:
            os.read(wakened, _SIGNALS_AT_ONCE)


def _state(pid: int) -> tuple[str, int] | None:
    try:
        stat = procfs.read_stat(pid)
    except OSError:
        return None
    return stat.state, stat.start_ticks


def _let_go(pid: int, start_ticks: int) -> None:
    """Wait until nothing holds the target; a stop that is left over is ours, since it ran before."""
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        now = _state(pid)
        if now is None or now[1] != start_ticks:
            return
        if now[0] == "T":
            os.kill(pid, signal.SIGCONT)
        elif now[0] != "t":
            return
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main()
