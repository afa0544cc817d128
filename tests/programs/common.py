"""What the test programs share: a root, ranks joined by a ring of sockets, and a word to the test when they are there.

A program is one script. The test starts it as the root; the root starts the same script once per rank and, where the
program asks for it, in other roles. In style 'title' the root takes requests of clients and the ranks go to what they
came for on the first one; in style 'torchrun' there are no clients and they go at once. Standard library only: programs
also run under interpreters without gpudiag's dependencies, with the checkout on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from gpudiag.demo.scripts.collective import Group, Ring, put_message, take_message
from gpudiag.demo.scripts.lifeline import adopt_orphans, die_with_parent, end_family, watch_lifeline
from gpudiag.demo.scripts.wiring import connected_pair

Expects = Literal["sleep", "run", "uninterruptible", "gone", "any"]
"""State in which the test will find a process when it has arrived."""

HOURS_S = 6 * 3600.0
WARM_UP_ROUNDS = 3


@dataclass
class Seat:
    """The place of one process in a program. `options` are the program's own; `number` is -1 in other roles than a rank's."""

    ranks: int
    victim: int
    style: str
    ready_fd: int
    lifeline_fd: int
    options: dict[str, str]
    number: int = -1
    role: str = "root"
    extra: list[str] = field(default_factory=list)
    links: list[socket.socket] = field(default_factory=list)
    mailbox: socket.socket | None = None
    """Between the root and rank 0, None elsewhere."""
    _group: Group | None = None

    @property
    def name(self) -> str:
        return f"rank{self.number}" if self.role == "rank" else self.role

    @property
    def is_victim(self) -> bool:
        return self.number == self.victim

    @property
    def group(self) -> Group:
        assert self._group is not None
        return self._group

    def all_reduce(self) -> float:
        """One real sum over all ranks."""
        return self.group.all_reduce(array("d", range(self.ranks)))[0]

    def next_request(self) -> bytes:
        """Wait for work: rank 0 takes a request from the root and passes it to the others."""
        return self.group.broadcast(take_message(self.mailbox) if self.mailbox else b"")

    def answer_request(self, answer: bytes) -> None:
        """Rank 0 answers the request that all ranks have worked on."""
        if self.mailbox:
            put_message(self.mailbox, answer)

    def arrive(
        self, expects: Expects = "sleep", *, tid: int | None = None, awaits: tuple[str, ...] = (), **facts: object
    ) -> None:
        """Tell the test that the next thing this process does is what it came for.

        `tid` is the thread to look at if it is not the main one, `awaits` names roles that have yet to arrive, `facts`
        are passed on.
        """
        line = {"name": self.name, "pid": os.getpid(), "tid": tid or os.getpid(), "expects": expects, "awaits": awaits, **facts}
        os.write(self.ready_fd, json.dumps(line).encode() + b"\n")

    def launch(self, role: str, *extra: str, title: str | None = None, fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        """Start this script in another role; `extra` arrives as `Seat.extra`, `title` as argv[0]."""
        return subprocess.Popen(
            self.command(role, *extra, title=title),
            executable=self.options["python"],
            stdin=subprocess.DEVNULL,
            pass_fds=(self.ready_fd, self.lifeline_fd, *fds),
        )

    def command(self, role: str, *extra: str, title: str | None = None) -> list[str]:
        """The arguments with which `launch` starts a role."""
        flags = [f"--{name}={value}" for name, value in self._flags(role).items()]
        options = [f"{name}={value}" for name, value in self.options.items()]
        return [title or self.options["python"], os.path.abspath(sys.argv[0]), *flags, f"--extra={json.dumps(extra)}", *options]

    def _flags(self, role: str) -> dict[str, object]:
        return {
            "role": role,
            "ranks": self.ranks,
            "victim": self.victim,
            "style": self.style,
            "ready-fd": self.ready_fd,
            "lifeline-fd": self.lifeline_fd,
        }


Body = Callable[[Seat], None]


def wait_in_all_reduce(seat: Seat) -> None:
    """What a rank does that is all right: it goes to the next all-reduce and waits there for the victim."""
    seat.arrive()
    seat.all_reduce()
    raise SystemExit("the victim came to the all-reduce after all")


def serve(seat: Seat) -> None:
    """What the root does: hand on the requests of clients, or, as a launcher, see now and then whether its ranks live."""
    if seat.style == "torchrun":
        seat.arrive()
        while True:
            time.sleep(0.5)
    listener = socket.create_server(("127.0.0.1", 0))
    seat.arrive(port=listener.getsockname()[1])
    turn = threading.Lock()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(seat, connection, turn), daemon=True).start()


def _answer(seat: Seat, connection: socket.socket, turn: threading.Lock) -> None:
    assert seat.mailbox is not None
    with connection:
        while request := connection.recv(4096):
            with turn:
                put_message(seat.mailbox, request)
                answer = take_message(seat.mailbox)
            connection.sendall(answer)


def run_program(
    victim: Body, *, other: Body = wait_in_all_reduce, root: Body = serve, asked: bool = True, ring: bool = True, **roles: Body
) -> None:
    """Run the process that the command line asks for: the root, a rank, or one of the program's own `roles`.

    If `asked`, ranks wait for the first request (if there are clients) before they do what they came for. Without `ring`
    they have no group but one that they make themselves.
    """
    seat = _parse()
    bodies = {"root": root, "rank": victim if seat.number == seat.victim else other, **roles}
    if seat.role == "root":
        watch_lifeline(seat.lifeline_fd, at_end=end_family)
        adopt_orphans()
        _start_ranks(seat, ring)
    elif seat.role == "rank":
        die_with_parent()
    else:
        watch_lifeline(seat.lifeline_fd)
    if seat.role == "rank" and ring:
        seat._group = Ring(seat.number, seat.ranks, seat.links)
        for _ in range(WARM_UP_ROUNDS if seat.ranks > 1 else 0):
            seat.all_reduce()
        if asked and seat.style == "title":
            seat.next_request()
    bodies[seat.role](seat)


def idle_company() -> None:
    """A thread that wakes now and then and has no part in anything, as every real rank has."""
    stopping = threading.Event()

    def monitor_loop() -> None:
        while not stopping.wait(timeout=1.0):
            os.getloadavg()

    threading.Thread(target=monitor_loop, name="monitor", daemon=True).start()


def _parse() -> Seat:
    parser = argparse.ArgumentParser()
    parser.add_argument("--role", default="root")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--victim", type=int, default=0)
    parser.add_argument("--style", choices=("title", "torchrun"), default="title")
    parser.add_argument("--ready-fd", type=int, required=True)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--extra", type=json.loads, default=[])
    parser.add_argument("options", nargs="*")
    given = parser.parse_args()
    seat = Seat(
        ranks=given.ranks,
        victim=given.victim,
        style=given.style,
        ready_fd=given.ready_fd,
        lifeline_fd=given.lifeline_fd,
        options=dict(option.split("=", 1) for option in given.options),
        role=given.role,
        extra=given.extra,
    )
    if seat.role == "rank":
        number, *fds = map(int, seat.extra)
        seat.number = number
        seat.links = [socket.socket(fileno=fd) for fd in fds]
        seat.mailbox = seat.links.pop() if number == 0 and seat.style == "title" else None
    return seat


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start_ranks(seat: Seat, ring: bool) -> None:
    pairs = [connected_pair("tcp", "") for _ in range(seat.ranks)] if ring else []
    far_mailbox = None
    if seat.style == "title":
        seat.mailbox, far_mailbox = socket.socketpair()
    os.environ |= {"WORLD_SIZE": str(seat.ranks), "LOCAL_WORLD_SIZE": str(seat.ranks)}
    if seat.style == "torchrun":
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "OMP_NUM_THREADS": "1"}
    for number in range(seat.ranks):
        links = [pairs[number - 1][1].fileno(), pairs[number][0].fileno()] if ring else []
        if number == 0 and far_mailbox:
            links.append(far_mailbox.fileno())
        os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number)}
        title = f"demo::worker_TP{number}" if seat.style == "title" else None
        seat.launch("rank", str(number), *map(str, links), title=title, fds=tuple(links))
    for link in (*(link for pair in pairs for link in pair), far_mailbox):
        if link:
            link.close()
