"""Whether a start still does something, and when it is worth a look.

Nothing here is a verdict. A look stops nobody and says what a silent server does; how long it may be silent before the
first look, and how much later the next one comes, is all that is decided.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

QUIET_S: Final = 3.0
"""No output, no processor time, no bytes: a healthy start is never so still for long, and a look then costs nothing."""
SILENT_S: Final = 20.0
"""Processor time and nothing else: imports and compilers do that for minutes, but so does a rank that spins in a wait."""
MOST_S: Final = 600.0
_LITTLE_CPU: Final = 0.03
"""Share of one core below which all processes together count as asleep: heartbeats and event loops need as much."""
_LITTLE_BYTES: Final = 1 << 20


class Pulse(Struct, frozen=True, kw_only=True):
    """What can be seen of a server without looking inside. All but `at` only ever grow while it works.

    `at` is monotonic seconds, `cpu_s` processor seconds of all its processes, `bytes_moved` what they read, mapped in and
    put on GPUs.
    """

    at: float
    log_bytes: int
    cpu_s: float
    births: int
    bytes_moved: int
    gpu_busy: bool = False


class StartWatch:
    """Follows the pulses of a start. `patience` is a factor on how long it may be silent before a look."""

    def __init__(self, patience: float = 1.0) -> None:
        self._quiet_s, self._silent_s = QUIET_S * patience, SILENT_S * patience
        self._before: Pulse | None = None
        self._quiet_since: float | None = None
        self._silent_since: float | None = None
        self._next_quiet, self._next_silent = self._quiet_s, self._silent_s
        self.moved = False
        """Whether something new happened since the pulse before."""

    def add(self, pulse: Pulse) -> Literal["quiet", "silent"] | None:
        """'quiet' if nothing at all has happened for long enough, 'silent' if only processor time was used."""
        before, self._before = self._before, pulse
        if before is None:
            return None
        self.moved = (
            pulse.log_bytes != before.log_bytes
            or pulse.births != before.births
            or abs(pulse.bytes_moved - before.bytes_moved) >= _LITTLE_BYTES
        )
        if self.moved:
            self.restart(pulse.at)
            return None
        asleep = not pulse.gpu_busy and pulse.cpu_s - before.cpu_s < _LITTLE_CPU * max(0.1, pulse.at - before.at) + 0.011
        self._silent_since = before.at if self._silent_since is None else self._silent_since
        if not asleep:
            self._quiet_since, self._next_quiet = None, self._quiet_s
        elif self._quiet_since is None:
            self._quiet_since = before.at
        if self._quiet_since is not None and pulse.at - self._quiet_since >= self._next_quiet:
            self._next_quiet = pulse.at - self._quiet_since + min(MOST_S, 2 * self._next_quiet)
            return "quiet"
        if self._quiet_since is None and pulse.at - self._silent_since >= self._next_silent:
            self._next_silent = pulse.at - self._silent_since + min(MOST_S, 2 * self._next_silent)
            return "silent"
        return None

    def restart(self, at: float) -> None:
        """Something happened at `at`."""
        self._quiet_since = self._silent_since = at
        self._next_quiet, self._next_silent = self._quiet_s, self._silent_s
