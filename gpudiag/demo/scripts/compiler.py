"""A compiler driver that starts the next stage, or the stage that does the work: minutes of it."""

from __future__ import annotations

import os
import time

from .lifeline import watch_lifeline
from .settings import launch, load_settings, report
from .titles import show_title

COMPILE_S = 300.0


def compile_stage(directory: str, chain: str, family: str) -> None:
    title, _, rest = chain.partition(",")
    show_title(title)
    watch_lifeline(int(family))
    settings = load_settings(directory)
    if rest:
        following = rest.partition(",")[0]
        fds = (int(family), settings.report_fd)
        raise SystemExit(launch(settings, following, "compiler", rest, family, fds=fds).wait())
    os.nice(5)
    report(settings, f"compiling {settings.victim}")
    finish = time.monotonic() + COMPILE_S
    while time.monotonic() < finish:
        optimise_block(20_000)


def optimise_block(size: int) -> int:
    return sum(value * value % 7 for value in range(size))
