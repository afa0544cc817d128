"""The victim waits for a child process that never ends.

how=run | communicate; child=sleep | pipe (it reads a pipe whose write end it holds itself) | busy (not a hang: it computes)
"""

from __future__ import annotations

import os
import subprocess
import time

from tests.programs.common import HOURS_S, Seat, idle_company, run_program


def victim(seat: Seat) -> None:
    idle_company()
    command = seat.command("child", title="convert_weights")
    fds = (seat.ready_fd, seat.lifeline_fd)
    seat.arrive(awaits=("child",))
    if seat.options.get("how", "run") == "run":
        subprocess.run(command, executable=seat.options["python"], pass_fds=fds, check=True)
    else:
        with subprocess.Popen(command, executable=seat.options["python"], pass_fds=fds, stdout=subprocess.PIPE) as process:
            process.communicate()


def child(seat: Seat) -> None:
    kind = seat.options.get("child", "sleep")
    if kind == "busy":
        seat.arrive("run")
        total = 0
        while True:
            total += sum(range(1000))
    if kind == "pipe":
        answers, _questions = os.pipe()
        seat.arrive()
        os.read(answers, 1)
    seat.arrive()
    time.sleep(HOURS_S)


run_program(victim, child=child)
