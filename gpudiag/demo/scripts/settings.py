"""What every process of one run knows: written once, before the first of them starts."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One run. `variant` is drawn from the seed and picks among equally real ways of doing the same thing."""

    directory: str
    python: str
    prefix: str
    scenario: str
    ranks: int
    victim: int
    start_order: list[int]
    topology: str
    family: str
    polling: bool
    fault_request: int
    fault_step: int
    variant: int
    extra_threads: int
    lock_name: str
    kernel_name: str
    lifeline_fd: int
    report_fd: int

    def chooses(self, bit: int) -> bool:
        """Whether bit `bit` of the variant is set."""
        return bool(self.variant >> bit & 1)


def load_settings(directory: str) -> Settings:
    with open(os.path.join(directory, "settings.json")) as stored:
        return Settings(**json.load(stored))


def report(settings: Settings, line: str) -> None:
    """Tell whoever started the demo; it may have left already."""
    try:
        os.write(settings.report_fd, line.encode() + b"\n")
    except BrokenPipeError:
        return


def launch(
    settings: Settings,
    title: str,
    role: str,
    *arguments: str,
    fds: tuple[int, ...] = (),
    environment: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start another process of the demo, called `title` in the process table, with `fds` at the same numbers."""
    return subprocess.Popen(
        [title, "-m", str(__package__), role, settings.directory, *arguments],
        executable=settings.python,
        stdin=subprocess.DEVNULL,
        pass_fds=fds,
        env={**os.environ, **(environment or {})},
    )
