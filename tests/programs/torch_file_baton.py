"""The victim waits in torch's FileBaton for the lock of a build that was killed; the others in an all-reduce."""

from __future__ import annotations

import os
import time

from torch.utils.file_baton import FileBaton

from tests.programs.common import HOURS_S, Seat, idle_company, run_program
from tests.programs.torch_group import join_group, sum_gradients


def build_extension(path: str) -> None:
    baton = FileBaton(path)
    if not baton.try_acquire():
        baton.wait()


def victim(seat: Seat) -> None:
    idle_company()
    join_group()
    path = os.path.join(seat.options["directory"], "lock")
    told, told_far = os.pipe()
    builder = seat.launch("builder", path, str(told_far), fds=(told_far,))
    os.read(told, 1)
    builder.kill()
    builder.wait()
    seat.arrive(path=path)
    build_extension(path)
    sum_gradients()


def other(seat: Seat) -> None:
    idle_company()
    join_group()
    seat.arrive()
    sum_gradients()


def builder_body(seat: Seat) -> None:
    path, told = seat.extra
    assert FileBaton(path).try_acquire()
    os.write(int(told), b".")
    time.sleep(HOURS_S)


run_program(victim, other=other, ring=False, builder=builder_body)
