"""The victim waits without a limit for what no other thread will ever do.

kind=event | future | semaphore | queue | condition
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future

from tests.programs.common import Seat, idle_company, run_program


def victim(seat: Seat) -> None:
    idle_company()
    weights_ready = threading.Event()
    result: Future[int] = Future()
    slots = threading.Semaphore(0)
    batches: queue.Queue[int] = queue.Queue()
    changed = threading.Condition()
    seat.arrive()
    match seat.options.get("kind", "event"):
        case "event":
            weights_ready.wait()
        case "future":
            result.result()
        case "semaphore":
            slots.acquire()
        case "queue":
            batches.get()
        case "condition":
            with changed:
                changed.wait()


run_program(victim)
