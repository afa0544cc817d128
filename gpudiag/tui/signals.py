"""The one thing that touches a process: a signal, where --allow-signals was given and the person said yes."""

from __future__ import annotations

import os
import signal
from typing import Final

from msgspec import Struct

from gpudiag.tui.secrets import shown_command
from gpudiag.tui.view import View

_MAX_COMMAND: Final = 400


class SignalTarget(Struct, frozen=True, kw_only=True):
    """A process as it was seen: `start_ticks` tells it from a later one with the same pid."""

    pid: int
    start_ticks: int
    command: str


def target_of(view: View, pid: int) -> SignalTarget | None:
    """The process of a frame, with the command line by which a person knows it."""
    observation = view.details.observation
    process = observation.last.process(pid) if observation is not None else None
    if process is None:
        return None
    return SignalTarget(pid=pid, start_ticks=process.start_ticks, command=shown_command(process, limit=_MAX_COMMAND))


def terminate(target: SignalTarget) -> str:
    """Send SIGTERM, if the pid still belongs to the process that was shown."""
    from gpudiag.collect import procfs

    try:
        # The descriptor holds on to the process: between the check and the signal the pid cannot pass to another one.
        descriptor = os.pidfd_open(target.pid)
        try:
            if procfs.read_stat(target.pid).start_ticks != target.start_ticks:
                return f"pid {target.pid} belongs to another process now; nothing was sent"
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"cannot send SIGTERM to pid {target.pid}: {error.strerror}"
    return f"sent SIGTERM to pid {target.pid}"
