"""A small server of real processes with vLLM's titles, log lines and HTTP: a root, an engine core's worth of ranks, clients.

    python server.py vllm.entrypoints.openai.api_server --port N [--ranks 2] [--fault NAME] [--victim 1]

The root asks every rank for each request and answers when all have. FAULT is what goes wrong by itself; 'a rank' is --victim:

crash        a rank raises at once; the root says so and ends with 1
syntax       the root itself fails with a SyntaxError before it starts anybody
hang         a rank waits for a lock that nobody gives back, before the server is ready
asleep       the ranks sleep for ten minutes before the server is ready
naps         the ranks sleep again and again for 8 s before the server is ready
slow         a rank computes on the second request until the file after --weights is gone
mute         nothing of it all is logged
wedge        a rank takes the second request and waits for a lock that nobody gives back
litter       the root maps shared memory and binds a socket, and is killed with them
stubborn     the root ignores SIGINT and SIGTERM
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def log(tag: str, text: str) -> None:
    if "mute" in sys.argv:
        return
    stamp = time.strftime("%m-%d %H:%M:%S")
    print(f"({tag} pid={os.getpid()}) INFO {stamp} [server.py:1] {text}", file=sys.stderr, flush=True)


def complain(tag: str) -> None:
    """The traceback of what is being raised, each line with the process's tag before it, as vLLM's ranks write theirs."""
    for line in traceback.format_exc().splitlines():
        print(f"({tag} pid={os.getpid()}) {line}", file=sys.stderr, flush=True)


def serve_rank(rank: int, fd: int, fault: str, weights: str, *, is_victim: bool) -> None:
    try:
        work(rank, socket.socket(fileno=fd), fault, weights, is_victim=is_victim)
    except RuntimeError:
        complain(f"Worker_TP{rank}")
        sys.exit(1)


def load(weights: str) -> None:
    """Read the file, or map it into memory if its name ends in .mapped, a MiB after the other, as slow storage would."""
    if not weights:
        return
    with open(weights, "rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if weights.endswith(".mapped") else file
        kept = []
        while piece := view.read(1 << 20):
            kept.append(piece)
            time.sleep(0.05)


def work(rank: int, link: socket.socket, fault: str, weights: str, *, is_victim: bool) -> None:
    log(f"Worker_TP{rank}", f"world_size=2 rank={rank} local_rank={rank} distributed_init_method=tcp://127.0.0.1:1 backend=gloo")
    log(f"Worker_TP{rank}", "Starting to load model")
    if fault == "crash" and is_victim:
        raise RuntimeError("the weights of this rank are of another shape")
    if fault == "hang" and is_victim:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    while fault in ("asleep", "naps"):
        time.sleep(600 if fault == "asleep" else 8)
    load("" if fault == "slow" else weights)
    log(f"Worker_TP{rank}", "Loading weights took 0.01 seconds")
    log(f"Worker_TP{rank}", "CPU KV cache size: 4,096 tokens")
    link.sendall(b"r")
    asked = 0
    while request := link.recv(64):
        asked += 1
        if fault == "wedge" and is_victim and asked == 2:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        while fault == "slow" and is_victim and asked == 2 and os.path.exists(weights):
            sum(n * n for n in range(10_000))
        link.sendall(request)


class Root:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.tokens = 0
        self.links: list[socket.socket] = []
        self.ranks: list[subprocess.Popen[bytes]] = []

    def start_ranks(self) -> None:
        for rank in range(self.options.ranks):
            near, far = socket.socketpair()
            command = [f"VLLM::Worker_TP{rank}", __file__, "--rank", str(rank), "--fd", str(far.fileno())]
            self.ranks.append(
                subprocess.Popen(
                    [*command, *self.options_of_ranks()],
                    executable=sys.executable,
                    pass_fds=(far.fileno(),),
                    env={**os.environ, "PYTHONHOME": f"{sys.base_prefix}:{sys.base_exec_prefix}"},
                )
            )
            far.close()
            self.links.append(near)
        for rank, link in enumerate(self.links):
            if not link.recv(1):
                log("APIServer", "init engine failed")
                raise RuntimeError(f"Engine core initialization failed. See root cause above. Failed core proc(s): {{{rank}}}")

    def options_of_ranks(self) -> list[str]:
        given = self.options
        return ["--fault", given.fault, "--victim", str(given.victim), "--weights", given.weights]

    def ask_ranks(self) -> None:
        with self.lock:
            for link in self.links:
                link.sendall(b"x")
            for link in self.links:
                if not link.recv(64):
                    raise ConnectionError("a rank is gone")
            self.tokens += 1


def handler(root: Root) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.reply(json.dumps({"data": [{"id": "tiny"}]}))
            else:
                self.reply(f"vllm:generation_tokens_total {root.tokens}\nvllm:num_requests_running 0\n")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            root.ask_ranks()
            self.reply('{"choices": [{"text": "a"}]}')

        def reply(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments: Any) -> None:
            """Nothing: the requests of a test are its own business."""

    return Handler


def litter(path: str) -> tuple[mmap.mmap, socket.socket]:
    """Shared memory that stays mapped, and a bound socket; `path` is a prefix for both names."""
    handle = os.open(f"/dev/shm/{path}", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(handle, 4096)
    mapped = mmap.mmap(handle, 4096)
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(f"/tmp/{path}")
    bound.listen()
    return mapped, bound


def serve_root(options: argparse.Namespace) -> None:
    log("APIServer", "non-default args: {}")
    if options.fault == "syntax":
        compile("f(a\nb = 1,", "/opt/model/llama.py", "exec")
    if options.fault == "stubborn":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kept = litter(options.litter) if options.litter else None
    root = Root(options)
    root.start_ranks()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler(root))
    log("APIServer", "Application startup complete.")
    if options.fault != "stubborn":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    for rank in root.ranks:
        rank.terminate()
        rank.wait()
    del kept


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", nargs="?")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tensor-parallel-size", type=int)
    parser.add_argument("--fault", default="")
    parser.add_argument("--victim", type=int, default=1)
    parser.add_argument("--litter", default="")
    parser.add_argument("--weights", default="")
    parser.add_argument("--api-key")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--fd", type=int)
    options = parser.parse_args()
    if options.rank is not None:
        is_victim = options.rank == options.victim
        serve_rank(options.rank, options.fd, options.fault, options.weights, is_victim=is_victim)
    else:
        serve_root(options)


if __name__ == "__main__":
    main()
