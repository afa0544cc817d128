"""A server that answers with what real ones said: recorded bodies, or bodies written after an engine's source."""

from __future__ import annotations

import contextlib
import json
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


def plain_sglang() -> Script:
    """SGLang 0.5.23 without a drafter, on a CPU."""
    return Script(
        gets={
            "/v1/models": b'{"object":"list","data":[{"id":"tiny","object":"model","owned_by":"sglang","max_model_len":512}]}',
            "/server_info": recorded("sglang-0.5.23-plain-server_info.json"),
        },
        posts={
            "/v1/chat/completions": recorded("sglang-0.5.23-plain-chat.sse"),
            "/generate": recorded("sglang-0.5.23-plain-generate.sse"),
        },
        metrics=tuple(recorded(f"sglang-0.5.23-plain-metrics-{i}.txt") for i in range(3)),
    )


def sglang_events(steps: tuple[int, ...], *, details: bool) -> bytes:
    """A chat answer as SGLang 0.5.23 streams it by its source (srt/entrypoints/openai/serving_chat.py): not a recorded one.

    `steps` are the accepted drafts of each round of a chain of three. EAGLE-3 of SGLang needs a GPU.
    """
    events: list[dict[str, object]] = []
    tokens = 1
    for accepted in (None, *steps):
        tokens += 0 if accepted is None else accepted + 1
        usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
        events.append({"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}], "usage": usage})
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    if details:
        counts = {
            "spec_accept_rate": sum(steps) / (3 * len(steps)),
            "spec_accept_length": tokens / len(steps),
            "spec_num_correct_drafts": sum(steps),
            "spec_num_proposed_drafts": 3 * len(steps),
            "spec_verify_ct": len(steps),
            "spec_correct_drafts_histogram": [steps.count(n) for n in range(max(steps) + 1)],
        }
        events.append({"choices": [], "sglext": {"spec_tokens_details": counts}})
    events.append({"choices": [], "usage": usage})
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def sglang(steps: tuple[int, ...], *, details: bool, posts: int = 1, **arguments: object) -> Script:
    """A server with the /metrics and /server_info that SGLang 0.5.17 gave on two H200s, moved on by each answer.

    `arguments` replace those of the recorded server.
    """
    info = {**json.loads(recorded("sglang-0.5.17-eagle3-server_info.json")), **arguments}
    metrics = recorded("sglang-0.5.17-eagle3-metrics.txt")
    bodies = []
    for count in range(posts + 1):
        body = metrics.replace(b'tiny/target"} 1664.0', b'tiny/target"} %d.0' % (1664 + count * (1 + sum(steps) + len(steps))))
        bodies.append(body.replace(b'tiny/target"} 1212.0', b'tiny/target"} %d.0' % (1212 + count * len(steps))))
    return Script(
        gets={
            "/v1/models": b'{"object":"list","data":[{"id":"/models/tiny/target","owned_by":"sglang"}]}',
            "/server_info": json.dumps(info).encode(),
        },
        posts={"/v1/chat/completions": sglang_events(steps, details=details)},
        metrics=tuple(bodies),
    )
