"""What goes wrong with the victim, one way per scenario."""

from __future__ import annotations

import os
import threading
import time

from .decoys import Company
from .feeder import BatchLoader
from .kernels import compile_kernel, load_kernel
from .pools import cross_pools
from .settings import Settings, launch

SHARED_OWNER = "shared"


class Mishap:
    """Sets up what a scenario needs on every rank, and makes it happen on one."""

    def __init__(self, settings: Settings, rank: int, family: int, orders: int, links: list[int], company: Company) -> None:
        self.settings = settings
        self.rank = rank
        self.family = family
        self.orders = orders
        self.company = company
        self.loader = BatchLoader(settings, rank, family) if settings.scenario == "queue-to-nobody" else None
        if settings.scenario == "rank-dead" and not settings.chooses(0):
            self.leak_into_child(links)

    def leak_into_child(self, links: list[int]) -> None:
        """Start a helper that inherits this rank's sockets and so keeps them open after the rank has died."""
        jobs, far = os.pipe()
        os.set_inheritable(far, True)
        held = (jobs, self.family, far, *links)
        self.helper = launch(self.settings, "python", "spare", ",".join(map(str, held)), fds=held)
        os.close(jobs)

    def ordinary_step(self, request: int, step: int) -> None:
        if self.loader is not None:
            self.loader.next_batch(request, step)

    def happen(self) -> None:
        scenario = self.settings.scenario
        if scenario == "stale-lock":
            load_kernel(self.settings, SHARED_OWNER, self.settings.kernel_name)
        elif scenario == "lock-cycle":
            cross_pools(self.settings, self.company.pool)
        elif scenario == "rank-missing":
            cool_down(6 * 3600)
        elif scenario == "slow-compile":
            compile_kernel(self.settings, self.family)
        elif scenario == "queue-to-nobody" and self.loader is not None:
            self.loader.last_batch(self.settings.fault_request, self.settings.fault_step)
        elif scenario in ("rank-dead", "rank-stopped"):
            os.write(self.orders, b"%s %d\n" % (b"kill" if scenario == "rank-dead" else b"stop", self.rank))
            compute_until_interrupted()


def cool_down(seconds: float) -> None:
    time.sleep(seconds)


def compute_until_interrupted() -> None:
    total = 0.0
    while threading.main_thread().is_alive():
        total += sum(value * 0.5 for value in range(1000))
