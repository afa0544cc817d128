"""The victim never joins the group: the others wait for it in init_process_group.

absent=sleep | ended: the victim sleeps in a function of its own, or its process is over
"""

from __future__ import annotations

import time

from tests.programs.common import HOURS_S, Seat, idle_company, run_program
from tests.programs.torch_group import join_group


def download_weights(seconds: float) -> None:
    time.sleep(seconds)


def victim(seat: Seat) -> None:
    if seat.options.get("absent", "sleep") == "ended":
        seat.arrive("gone")
        raise SystemExit(1)
    idle_company()
    seat.arrive()
    download_weights(HOURS_S)


def other(seat: Seat) -> None:
    idle_company()
    seat.arrive()
    join_group()


run_program(victim, other=other, ring=False)
