"""The ranks are all at work, each asking the others to try again, and no request is ever answered."""

from __future__ import annotations

import time

from tests.programs.common import Seat, idle_company, run_program

PAUSE_S = 0.002


def retry_for_ever(seat: Seat) -> None:
    idle_company()
    seat.arrive("any")
    attempt = 0
    while not reserve_pages(seat, attempt):
        attempt += 1
        release_pages(attempt)


def reserve_pages(seat: Seat, attempt: int) -> bool:
    """Every rank may have the pages if all others do without, so that no rank ever has them."""
    wanted = seat.all_reduce()
    return wanted < 0 and attempt > 0


def release_pages(attempt: int) -> None:
    time.sleep(PAUSE_S if attempt % 2 else 2 * PAUSE_S)


run_program(retry_for_ever, other=retry_for_ever)
