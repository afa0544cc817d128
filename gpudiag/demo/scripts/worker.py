"""One rank: takes requests, computes a step at a time together with the others, answers."""

from __future__ import annotations

import select
import socket
import time
from array import array

from .collective import join_group, put_message, take_message
from .decoys import Company
from .kernels import load_kernel
from .lifeline import die_with_parent, watch_lifeline
from .mishaps import Mishap
from .settings import Settings, load_settings, report
from .titles import show_title

POLL_PAUSE_S = 0.01
WIDTH = 16


class Worker:
    """The engine loop of one rank."""

    def __init__(self, settings: Settings, rank: int, sockets: list[socket.socket], company: Company, mishap: Mishap) -> None:
        self.settings = settings
        self.rank = rank
        self.mailbox = sockets.pop() if rank == 0 else None
        self.group = join_group(settings.topology, rank, settings.ranks, sockets)
        self.company = company
        self.mishap = mishap
        self.served = 0

    def serve_loop(self) -> None:
        while True:
            prompt = self.group.broadcast(self.fetch_prompt())
            if not prompt:
                continue
            self.served += 1
            answer = self.generate(prompt)
            if self.mailbox is not None:
                put_message(self.mailbox, answer)

    def fetch_prompt(self) -> bytes:
        """The next request; on rank 0 of a polling server an empty one while there is none."""
        if self.mailbox is None:
            return b""
        if self.settings.polling and not select.select([self.mailbox], [], [], 0)[0]:
            time.sleep(POLL_PAUSE_S)
            return b""
        return take_message(self.mailbox)

    def generate(self, prompt: bytes) -> bytes:
        state = array("d", (byte / 255 for byte in prompt[:WIDTH].ljust(WIDTH)))
        words = []
        for step in range(self.settings.fault_step + 3):
            state = self.decode_step(state, step)
            words.append(f"{sum(state):.3f}")
        return " ".join(words).encode()

    def decode_step(self, state: array[float], step: int) -> array[float]:
        if self.served == self.settings.fault_request and step == self.settings.fault_step:
            report(self.settings, f"waiting {self.rank}")
            if self.rank == self.settings.victim:
                self.mishap.happen()
        if step == 0:
            load_kernel(self.settings, f"rank{self.rank}", "rope")
        self.mishap.ordinary_step(self.served, step)
        partial = array("d", (value * (self.rank + 1) / self.settings.ranks for value in state))
        return self.group.all_reduce(partial)


def serve_rank(directory: str, rank: str, sockets: str, pipes: str) -> None:
    settings = load_settings(directory)
    family, heartbeat, orders = map(int, pipes.split(","))
    die_with_parent()
    show_title(f"{settings.prefix}::worker_TP{rank}", padded=settings.chooses(4))
    watch_lifeline(family)
    links = [socket.socket(fileno=int(fd)) for fd in sockets.split(",") if fd]
    company = Company(settings, int(rank), family, heartbeat)
    mishap = Mishap(settings, int(rank), family, orders, [link.fileno() for link in links], company)
    worker = Worker(settings, int(rank), links, company, mishap)
    report(settings, f"up {rank}")
    worker.serve_loop()
