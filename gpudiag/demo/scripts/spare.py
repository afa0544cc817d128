"""A worker of a compile pool that nobody ever gives a job."""

from __future__ import annotations

import os
import threading

from .lifeline import watch_lifeline


def await_jobs(directory: str, fds: str) -> None:
    """Take jobs from a pipe until it ends; the first descriptor is the pipe, the second the lifeline."""
    jobs, family, *_ = map(int, fds.split(","))
    watch_lifeline(family)
    with os.fdopen(jobs) as lines:
        for line in lines:
            compile(line, directory, "exec")
    threading.Event().wait()
