"""The root: speaks HTTP/1.0 with clients and hands their requests to rank 0."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import threading
from multiprocessing import resource_tracker, set_executable

from .collective import put_message, take_message
from .lifeline import adopt_orphans, end_family, watch_lifeline
from .settings import Settings, launch, load_settings, report
from .titles import show_title
from .wiring import connected_pair, wire_ranks


class Frontend:
    """Holds the ranks, the connection to rank 0 and the descriptors that only the root has."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine_lock = threading.Lock()
        self.engine, self.engine_far = connected_pair("unix", os.path.join(settings.directory, "engine"))
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.heartbeats: list[int] = []
        self.kept: list[socket.socket] = []

    def start_ranks(self) -> None:
        """Start the ranks in the order of the run, each with its own sockets."""
        settings = self.settings
        links = wire_ranks(settings)
        family_end, self.family_hold = os.pipe()
        orders_end, self.orders_far = os.pipe()
        for rank in settings.start_order:
            heartbeat, heartbeat_far = os.pipe()
            self.heartbeats.append(heartbeat)
            sockets = [link.fileno() for link in links[rank]] + ([self.engine_far.fileno()] if rank == 0 else [])
            fds = (*sockets, family_end, heartbeat_far, self.orders_far, settings.report_fd)
            worker = launch(
                settings,
                f"{settings.prefix}::worker_TP{rank}",
                "worker",
                str(rank),
                ",".join(map(str, sockets)),
                f"{family_end},{heartbeat_far},{self.orders_far}",
                fds=fds,
                environment={"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(settings.ranks)},
            )
            os.close(heartbeat_far)
            self.workers[rank] = worker
            report(settings, f"rank {rank} {worker.pid}")
        os.close(self.orders_far)
        handed_out = [self.engine_far, *(link for own in links for link in own)]
        if settings.scenario == "rank-dead" and settings.chooses(0):
            self.kept = handed_out
        else:
            for link in handed_out:
                link.close()
        threading.Thread(target=self.read_heartbeats, name="heartbeats", daemon=True).start()
        threading.Thread(target=self.obey_orders, args=(orders_end,), name="orders", daemon=True).start()

    def read_heartbeats(self) -> None:
        alive = select.poll()
        for fd in self.heartbeats:
            alive.register(fd, select.POLLIN)
        while True:
            for fd, _ in alive.poll():
                if not os.read(fd, 64):
                    alive.unregister(fd)

    def obey_orders(self, orders: int) -> None:
        """The out-of-memory killer or the operator of this server: `kill RANK` or `stop RANK`."""
        with os.fdopen(orders) as lines:
            for line in lines:
                order, rank = line.split()
                worker = self.workers[int(rank)]
                os.kill(worker.pid, signal.SIGSTOP if order == "stop" else signal.SIGKILL)
                if order == "kill" and self.settings.chooses(1):
                    worker.wait()

    def accept_clients(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        report(self.settings, f"port {listener.getsockname()[1]}")
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.answer_client, args=(connection,), daemon=True).start()

    def answer_client(self, connection: socket.socket) -> None:
        """Answer requests on one connection, until the client asks no more or did not ask to keep it."""
        with connection, connection.makefile("rb") as lines:
            kept = True
            while kept and (request := lines.readline()):
                length, kept = 0, False
                for header in iter(lines.readline, b"\r\n"):
                    name, _, value = header.lower().partition(b":")
                    if name == b"content-length":
                        length = int(value)
                    kept |= name == b"connection" and value.strip() == b"keep-alive"
                body = self.ask_engine(lines.read(length)) if request.startswith(b"POST ") else b"ok\n"
                head = f"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)

    def ask_engine(self, prompt: bytes) -> bytes:
        with self.engine_lock:
            put_message(self.engine, prompt)
            return take_message(self.engine)


def clear_up(directory: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    end_family()


def serve_frontend(directory: str, *_flags: str) -> None:
    settings = load_settings(directory)
    show_title(f"{settings.prefix}::frontend")
    watch_lifeline(settings.lifeline_fd, at_end=lambda: clear_up(directory))
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: clear_up(directory))
    set_executable(settings.python)
    resource_tracker.ensure_running()
    frontend = Frontend(settings)
    frontend.start_ranks()
    frontend.accept_clients()
