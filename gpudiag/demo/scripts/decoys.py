"""The company that a real rank keeps: threads and processes that wait or beat and have no part in any request."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from .settings import Settings, launch

HEARTBEAT_S = 0.2


class Company:
    """Starts them and keeps what they hold on to."""

    def __init__(self, settings: Settings, rank: int, family: int, heartbeat: int) -> None:
        self.stopping = threading.Event()
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="copier")
        self.pool.submit(os.getpid).result()
        threading.Thread(target=self.monitor_loop, name="monitor", daemon=True).start()
        threading.Thread(target=self.beat, args=(heartbeat,), name="heartbeat", daemon=True).start()
        for number in range(settings.extra_threads):
            threading.Thread(target=self.monitor_loop, name=f"extra-{number}", daemon=True).start()
        if rank == 0:
            jobs, self.jobs_far = os.pipe()
            self.spare = launch(settings, "python", "spare", f"{jobs},{family}", fds=(jobs, family))
            os.close(jobs)

    def monitor_loop(self) -> None:
        while not self.stopping.wait(timeout=1.0):
            os.getloadavg()

    def beat(self, heartbeat: int) -> None:
        while not self.stopping.wait(timeout=HEARTBEAT_S):
            os.write(heartbeat, b".")
