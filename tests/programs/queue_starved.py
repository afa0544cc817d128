"""Rank `victim` waits for a reply of a helper process to which it never sent the job: the helper waits for work.

via=connection | pipe
"""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

from tests.programs.common import Seat, idle_company, run_program


def victim(seat: Seat) -> None:
    idle_company()
    jobs, jobs_far = os.pipe()
    replies, replies_far = os.pipe()
    title = "demo::detokenizer" if seat.style == "title" else None
    seat.launch("helper", str(jobs), str(replies_far), title=title, fds=(jobs, replies_far))
    os.close(jobs)
    os.close(replies_far)
    to_helper = Connection(jobs_far, readable=False)
    from_helper = Connection(replies, writable=False)
    to_helper.send("first")
    assert from_helper.recv() == "FIRST"
    seat.arrive(awaits=("helper",))
    if seat.options.get("via", "connection") == "pipe":
        os.read(replies, 1)
    from_helper.recv()


def helper(seat: Seat) -> None:
    jobs, replies = (Connection(int(fd), writable=index == 1, readable=index == 0) for index, fd in enumerate(seat.extra))
    replies.send(jobs.recv().upper())
    seat.arrive()
    while True:
        replies.send(jobs.recv().upper())


run_program(victim, helper=helper)
