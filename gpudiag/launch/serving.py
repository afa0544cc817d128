"""A server that is ready: what it says of itself, and a request of one token where it is not clear that it still answers.

Everything that talks to the server does so on a thread of its own, with a deadline, one exchange at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from gpudiag.collect import procfs
from gpudiag.collect.http_ask import HttpError, Reply, ask
from gpudiag.collect.metrics import read_metrics
from gpudiag.launch.kernel import socket_inodes
from gpudiag.model.decoding import decode_json
from gpudiag.model.metrics import ServerMetrics, serving_between
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.run import LaunchPlan, Serving

T = TypeVar("T")

CLIENTS_EVERY_S: Final = 2.0
METRICS_EVERY_S: Final = 5.0
_SPARING: Final = 300
"""Counting clients takes at most a 300th of one core."""
STANDING_S: Final = 4.0
"""So long clients may be connected without a new token before one is asked for."""
UNANSWERED_S: Final = 3.0
"""So long a request of one token may take, with nothing else moving, before a look."""
FIRST_S: Final = 10.0
"""The same for the very first one: vLLM builds its last kernels with it (seen: 9 s on two cores)."""
CANARY_DEADLINE_S: Final = 60.0
_CANARY: Final = "def hello"
"""More than one token to any tokenizer: vLLM pads a prompt with one token left to a round of speculation, if it is scheduled
beside others, and counts that round with nothing accepted (0.32, v1/core/sched/scheduler.py)."""
AGAIN_S: Final = 15.0
"""Between two canaries that were answered."""
_MOST_BYTES: Final = 1 << 16
_TCP_LIMIT: Final = 4 << 20
_SOCKSTAT_LIMIT: Final = 4096
_ESTABLISHED: Final = b"01"
_LISTEN: Final = b"0A"
"""States in the fourth column of /proc/net/tcp (include/net/tcp_states.h)."""
_KEY_FLAG: Final = "--api-key"
_TLS_FLAGS: Final = ("--ssl-keyfile", "--ssl-certfile")


class Exchange(Generic[T]):
    """One question on a thread. `result` is None until it is there."""

    def __init__(self, question: Callable[[], T]) -> None:
        self.began = time.monotonic()
        self.result: T | None = None
        self._question = question
        self._thread = threading.Thread(target=self._run, name="gpudiag-ask", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def took_s(self) -> float:
        return time.monotonic() - self.began

    def _run(self) -> None:
        self.result = self._question()


class Answer(Struct, frozen=True, kw_only=True):
    """How a canary fared: `status` is the HTTP status, None with `error` if no answer came."""

    status: int | None = None
    error: str = ""

    @property
    def well(self) -> bool:
        return self.status == 200

    @property
    def refused(self) -> bool:
        """Whether the server said that it will not answer such a request (it makes no text, wants a key, another path)."""
        return self.status is not None and 400 <= self.status < 500


class Door:
    """How the server is reached from its own host."""

    def __init__(self, plan: LaunchPlan) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(plan.host, plan.host)  # noqa: S104
        self.base = f"http://{f'[{host}]' if ':' in host else host}:{plan.port}"
        self.port = plan.port
        self.plain = not any(word.partition("=")[0] in _TLS_FLAGS for word in plan.argv)
        """Whether it speaks HTTP; one with a certificate is left alone."""
        self._engine = plan.engine
        self._model: str | None = None
        self._headers = _authorization(plan)

    def metrics(self) -> Ok[ServerMetrics] | Unavailable | Failed:
        return read_metrics(self.base, headers=self._headers)

    def canary(self) -> Answer:
        """Ask for one token."""
        try:
            if self._engine == "sglang":
                body: dict[str, Any] = {"text": _CANARY, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
                return Answer(status=self._ask("/generate", body, CANARY_DEADLINE_S).status)
            if self._model is None:
                listed = self._ask("/v1/models", None, UNANSWERED_S)
                if listed.status != 200:
                    return Answer(status=listed.status)
                self._model = str(decode_json(listed.body)["data"][0]["id"])
            body = {"model": self._model, "prompt": _CANARY, "max_tokens": 1, "temperature": 0}
            return Answer(status=self._ask("/v1/completions", body, CANARY_DEADLINE_S).status)
        except HttpError as error:
            return Answer(error=str(error))
        except (msgspec.DecodeError, LookupError, TypeError):
            return Answer(status=404, error="/v1/models names no model")

    def listens(self, pids: Iterable[int]) -> bool:
        """Whether one of these processes listens on the server's port, and not somebody else."""
        listening = {inode for state, inode in self._connections() if state == _LISTEN}
        for pid in pids if listening else ():
            with contextlib.suppress(OSError):
                if listening & socket_inodes(pid):
                    return True
        return False

    def clients(self) -> int | None:
        """TCP connections that clients have open to the server's port; None where they cannot be counted.

        The kernel walks through its whole table for this, tens of milliseconds where that is large: ask `sockets` first.
        """
        try:
            return sum(state == _ESTABLISHED for state, _ in self._connections())
        except OSError:
            return None

    def _connections(self) -> Iterator[tuple[bytes, int]]:
        """State and inode of every TCP socket whose local port is the server's. Raises OSError."""
        port = b":%04X" % self.port
        for name in ("tcp", "tcp6"):
            try:
                raw = procfs.read_all(f"/proc/net/{name}", _TCP_LIMIT)
            except FileNotFoundError:
                # A kernel without IPv6 has no tcp6.
                continue
            for line in raw.splitlines()[1:]:
                fields = line.split(None, 10)
                if len(fields) > 9 and fields[1].endswith(port):
                    yield fields[3], int(fields[9])

    def sockets(self) -> bytes:
        """Something cheap that changes when a connection comes or goes: how many TCP sockets this net namespace uses."""
        return b" ".join(_used(name) for name in ("sockstat", "sockstat6"))

    def _ask(self, path: str, document: object, deadline_s: float) -> Reply:
        return ask(f"{self.base}{path}", deadline_s=deadline_s, most_bytes=_MOST_BYTES, document=document, headers=self._headers)


def _used(name: str) -> bytes:
    try:
        lines = procfs.read_once(f"/proc/net/{name}", _SOCKSTAT_LIMIT).splitlines()
    except OSError:
        return b""
    # 'TCP: inuse 27 orphan 0 tw 12 ...': those in TIME_WAIT come and go by themselves.
    return next((b"".join(line.split()[1:3]) for line in lines if line.startswith((b"TCP:", b"TCP6:"))), b"")


def _authorization(plan: LaunchPlan) -> Mapping[str, str]:
    """The key that the server was started with: its own clients need it, and so does the canary. It goes nowhere else."""
    key = dict(plan.environment).get("VLLM_API_KEY") or os.environ.get("VLLM_API_KEY", "")
    for word, following in zip(plan.argv, (*plan.argv[1:], ""), strict=True):
        flag, equals, value = word.partition("=")
        if flag == _KEY_FLAG:
            key = value if equals else following
    return {"Authorization": f"Bearer {key}"} if key else {}


class ServingWatch:
    """Decides when to ask what, and keeps what came back.

    `idle_s` is between canaries of a server nobody talks to; `patience` is a factor on the other times.
    """

    def __init__(self, door: Door, *, canary: bool, idle_s: float, patience: float = 1.0) -> None:
        self._patience = patience
        self._door = door
        self._canary_on = canary and door.plain
        self._idle_s = idle_s
        self.serving: Serving | None = None
        self.note = ""
        """Why there is no canary, where there is none."""
        self.answered = False
        """Whether a canary has been answered since the server was started."""
        self._canary: Exchange[Answer] | None = None
        self._scrape: Exchange[Ok[ServerMetrics] | Unavailable | Failed] | None = None
        self._metrics: ServerMetrics | None = None
        self._moved_at = time.monotonic()
        self._answered_at = self._asked_at = 0.0
        self._scraped_at = self._counted_at = 0.0
        self._clients: int | None = 0
        self._sockets = b""
        self._count_every_s = CLIENTS_EVERY_S * patience
        self._look_after = FIRST_S * patience
        self._unwell_since: float | None = None

    @property
    def probing(self) -> bool:
        """Whether canaries are sent at all."""
        return self._canary_on

    @property
    def well(self) -> bool:
        """Whether nothing that was asked stays without an answer."""
        return self._unwell_since is None and (self._canary is None or self._canary.took_s < UNANSWERED_S * self._patience)

    def listens(self, pids: Iterable[int]) -> bool:
        """Whether the server's port is open, which a server that logs only errors does not say; asked now and then."""
        now = time.monotonic()
        if now - self._counted_at < METRICS_EVERY_S * self._patience:
            return False
        self._counted_at = now
        try:
            return self._door.listens(pids)
        except OSError:
            return False

    def knock(self) -> None:
        """Send a canary now, unless one is under way."""
        if self._canary_on and self._canary is None:
            self._asked_at = time.monotonic()
            self._canary = Exchange(self._door.canary)

    def step(self) -> bool:
        """Take in what came and ask what is due. True if a request stays unanswered and a look should say why."""
        now = time.monotonic()
        self._take_metrics()
        self._take_canary(now)
        self._count_clients(now)
        if self._scrape is None and self._door.plain and now - self._scraped_at >= METRICS_EVERY_S * self._patience:
            self._scraped_at, self._scrape = now, Exchange(self._door.metrics)
        if self._canary is None and self._canary_due(now):
            self.knock()
        if self._unwell_since is not None:
            waited = now - self._unwell_since
        elif self._canary is not None:
            waited = min(self._canary.took_s, now - self._moved_at)
        else:
            return False
        if waited < self._look_after:
            return False
        self._look_after = waited + min(120.0, 2 * self._look_after)
        return True

    def _count_clients(self, now: float) -> None:
        """Who is connected matters only while no token comes. Where the answer is expensive it is asked for less often."""
        if now - self._counted_at < self._count_every_s or now - self._moved_at < STANDING_S * self._patience:
            return
        self._counted_at, self._count_every_s = now, CLIENTS_EVERY_S * self._patience
        sockets = self._door.sockets()
        if sockets != self._sockets or not sockets:
            began = time.thread_time()
            self._sockets, self._clients = sockets, self._door.clients()
            self._count_every_s = max(self._count_every_s, _SPARING * (time.thread_time() - began))

    def _canary_due(self, now: float) -> bool:
        if now - self._asked_at < CLIENTS_EVERY_S * self._patience:
            return False
        quiet_s = now - max(self._moved_at, self._answered_at)
        clients = self._clients is None or self._clients > 0
        if clients and quiet_s >= STANDING_S * self._patience:
            return now - self._asked_at >= AGAIN_S * self._patience or self._answered_at < self._asked_at
        return now - max(self._asked_at, self._moved_at) >= self._idle_s

    def _take_metrics(self) -> None:
        if self._scrape is None or not self._scrape.done:
            return
        reading, self._scrape = self._scrape.result, None
        if not isinstance(reading, Ok):
            return
        before, self._metrics = self._metrics, reading.value
        self.serving = serving_between(before, reading.value)
        if before is None or _progress(before) != _progress(reading.value):
            self._moved_at = time.monotonic()

    def _take_canary(self, now: float) -> None:
        if self._canary is None or not self._canary.done:
            return
        answer, self._canary = self._canary.result, None
        if answer is None:
            return
        if answer.well:
            self.answered, self._answered_at, self._look_after = True, now, UNANSWERED_S * self._patience
            self._unwell_since = None
        elif answer.refused:
            self._canary_on = False
            self._unwell_since = None
            self.note = f"no canary: the server answers a request of one token with status {answer.status}"
        elif self._unwell_since is None:
            # An error that comes at once (500 of a dead engine, a door that is shut) is as bad as silence.
            self._unwell_since = now


def _progress(metrics: ServerMetrics) -> tuple[float | None, ...]:
    return metrics.generated_live, metrics.generated_tokens, metrics.finished, metrics.prompt_tokens
