"""A server that answers with what real ones said: recorded bodies, or bodies written after an engine's source."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


@dataclass
class Script:
    """What is answered. `metrics` has one body for each number of POSTs that were answered, the last for all that follow."""

    gets: Mapping[str, bytes]
    posts: Mapping[str, bytes]
    metrics: tuple[bytes, ...] = ()
    refuse: Mapping[str, tuple[int, bytes]] = field(default_factory=dict)
    hold_from: int | None = None
    """Keep answers open after their last byte, from this POST on, counted from 0."""
    url: str = ""
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    headers: list[str | None] = field(default_factory=list)
    posted: int = 0
    held: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def serving(script: Script) -> Iterator[Script]:
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            body = script.gets.get(self.path)
            if self.path == "/metrics" and script.metrics:
                body = script.metrics[min(script.posted, len(script.metrics) - 1)]
            self._answer(404 if body is None else 200, body or b"{}")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            script.sent.append((self.path, body))
            script.headers.append(self.headers.get("Authorization"))
            status, said = script.refuse.get(self.path, (200, script.posts.get(self.path, b"")))
            if script.hold_from is not None and len(script.sent) > script.hold_from:
                self._hold(said)
                return
            script.posted += status == 200
            self._answer(status, said)

        def _hold(self, said: bytes) -> None:
            with contextlib.suppress(OSError):
                self.send_response(200)
                self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(said)
            script.held.set()
            while not ended.is_set():
                self.connection.settimeout(0.05)
                try:
                    gone = not self.connection.recv(1)
                except TimeoutError:
                    continue
                except OSError:
                    gone = True
                if gone:
                    script.hung_up.set()
                    return

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        script.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield script
        finally:
            ended.set()
            server.shutdown()
    thread.join(5)


VLLM_MODELS = (
    b'{"object":"list","data":[{"id":"tiny","object":"model","created":1795996969,"owned_by":"vllm","max_model_len":512}]}'
)


def chain_vllm(*, per_request: bool, metrics: tuple[bytes, ...] | None = None) -> Script:
    """vLLM 0.32.0 with a drafter whose first draft is always right and whose later ones never are."""
    answers = {
        "/v1/chat/completions": recorded("vllm-0.32.0-chain-chat.sse"),
        "/v1/completions": recorded("vllm-0.32.0-chain-text.sse"),
    }
    if not per_request:
        answers = {path: body.replace(b'"metrics":{"speculative_decoding"', b'"ignored":{"x"') for path, body in answers.items()}
    bodies = tuple(recorded(f"vllm-0.32.0-chain-metrics-{i}.txt") for i in range(3))
    return Script(
        gets={"/v1/models": VLLM_MODELS, "/version": b'{"version":"0.32.0"}'},
        posts=answers,
        metrics=bodies if metrics is None else metrics,
    )
