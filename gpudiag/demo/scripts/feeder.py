"""The process that prepares batches for one rank and sends them through a pipe."""

from __future__ import annotations

import os
import signal
import subprocess
from multiprocessing.connection import Connection

from .lifeline import watch_lifeline
from .settings import Settings, launch, load_settings, report
from .titles import show_title


def feed_batches(directory: str, rank: str, fds: str) -> None:
    """Answer every order for a batch. The victim's feeder is killed in the middle of one, as by the kernel."""
    settings = load_settings(directory)
    show_title(f"{settings.prefix}::loader")
    orders, batches, family = map(int, fds.split(","))
    watch_lifeline(family)
    sink = Connection(batches, readable=False)
    with os.fdopen(orders) as lines:
        for line in lines:
            request, step = map(int, line.split())
            if (int(rank), request, step) == (settings.victim, settings.fault_request, settings.fault_step):
                os.kill(os.getpid(), signal.SIGKILL)
            sink.send([request, step])


class BatchLoader:
    """A rank's side of the pipe. Like many a program it never closes its own copy of the write end."""

    def __init__(self, settings: Settings, rank: int, family: int) -> None:
        orders, self.orders_far = os.pipe()
        batches, self.batches_far = os.pipe()
        fds = (orders, self.batches_far, family)
        self.feeder = launch(settings, f"{settings.prefix}::loader", "feeder", str(rank), ",".join(map(str, fds)), fds=fds)
        report(settings, f"feeder {rank} {self.feeder.pid}")
        os.close(orders)
        self.source = Connection(batches, writable=False)
        self.sibling: subprocess.Popen[bytes] | None = None
        if settings.chooses(2):
            jobs, self.jobs_far = os.pipe()
            held = (jobs, family, self.batches_far)
            self.sibling = launch(settings, "python", "spare", ",".join(map(str, held)), fds=held)
            os.close(jobs)
        self.reaps = settings.chooses(1)

    def next_batch(self, request: int, step: int) -> object:
        os.write(self.orders_far, f"{request} {step}\n".encode())
        return self.source.recv()

    def last_batch(self, request: int, step: int) -> object:
        """The batch whose feeder is killed while it prepares it."""
        os.write(self.orders_far, f"{request} {step}\n".encode())
        if self.reaps:
            self.feeder.wait()
        return self.source.recv()
