"""HTTP to a server that may be hung, slow or hostile: one deadline for the whole exchange, a bound on what it answers."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gpudiag.errors import UsageError

USER_AGENT: Final = "gpudiag"
_PIECE_BYTES: Final = 1 << 16
_LINE_BYTES: Final = 1 << 20
_JSON: Final = {"Content-Type": "application/json"}


class HttpError(Exception):
    """No answer: nobody listens, the deadline passed, the answer has no end or is no HTTP. The text is for the user."""


class Reply(Struct, frozen=True, kw_only=True):
    """What came back. `took_s` is from before the connection until the last byte."""

    status: int
    body: bytes
    took_s: float


def base_url(text: str) -> str:
    """The address of a server as a user types it, as http://host:port without a path that the engines append.

    Raises UsageError where it names no host.
    """
    full = text if "://" in text else f"http://{text}"
    full = full.rstrip("/").removesuffix("/metrics").removesuffix("/v1")
    try:
        parts = urlsplit(full)
        bad = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
        bad = bad or bool(parts.query or parts.fragment)
    except ValueError:
        bad = True
    # Looked for in the text itself: where the rest is no address either, the message would repeat the password.
    if "@" in full:
        raise UsageError("the address holds a user or a password", help="leave them out; --api-key-env NAME names a key")
    if bad or any(not 32 < ord(letter) < 127 for letter in full):
        raise UsageError(f"no address of a server: {text[:80]!r}", help="for example http://127.0.0.1:30000")
    return full


def ask(
    url: str,
    *,
    deadline_s: float,
    most_bytes: int,
    document: object = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """GET `url`, or POST `document` to it as JSON. Redirects are not followed, proxies not used.

    Raises HttpError. An interrupt (Ctrl-C) closes the connection, on which both engines drop the request.
    """
    started = time.monotonic()
    with _exchange(url, deadline_s, document, headers, None) as answer:
        read = _bounded(answer, most_bytes)
        status = answer.status
    return Reply(status=status, body=read, took_s=time.monotonic() - started)


class Event(Struct, frozen=True, kw_only=True):
    """One server-sent event: its data, and when it was read (monotonic seconds)."""

    data: bytes
    at: float


class RefusedError(HttpError):
    """The server answered with another status than 200; `body` is the beginning of what it said."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.body = body


def events(
    url: str,
    document: object,
    *,
    deadline_s: float,
    most_bytes: int,
    headers: Mapping[str, str] | None = None,
    opened: Callable[[socket.socket], None] | None = None,
) -> Iterator[Event]:
    """POST `document` and yield the whole events of the answer until it ends or says [DONE].

    `opened` gets the socket, so that another thread can shut it down. Raises HttpError, RefusedError.
    """
    with _exchange(url, deadline_s, document, headers, opened) as answer:
        if answer.status != 200:
            raise RefusedError(answer.status, answer.read(_PIECE_BYTES))
        left = most_bytes
        while line := answer.readline(min(left, _LINE_BYTES)):
            left -= len(line)
            if left <= 0 or len(line) == _LINE_BYTES:
                raise HttpError("an answer that is too long")
            if not line.endswith(b"\n"):
                return
            if line.startswith(b"data:"):
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                yield Event(data=data, at=time.monotonic())


@contextlib.contextmanager
def _exchange(
    url: str,
    deadline_s: float,
    document: object,
    headers: Mapping[str, str] | None,
    opened: Callable[[socket.socket], None] | None,
) -> Iterator[http.client.HTTPResponse]:
    """Send the request and give the answer to the body of the with statement, whose errors it explains."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=deadline_s)
    due = time.monotonic() + deadline_s
    body = None if document is None else msgspec.json.encode(document)
    sent = {"User-Agent": USER_AGENT, "Connection": "close", **(_JSON if body is not None else {}), **(headers or {})}
    late = threading.Event()
    try:
        connection.connect()
        if opened is not None:
            opened(connection.sock)
        with _ends_at(connection.sock, due, late):
            connection.request("GET" if body is None else "POST", target, body=body, headers=sent)
            yield connection.getresponse()
        if late.is_set():
            raise HttpError(_late(deadline_s))
    except ConnectionRefusedError:
        raise HttpError(f"nobody listens on {parts.netloc}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if late.is_set() or isinstance(error, TimeoutError):
            raise HttpError(_late(deadline_s)) from None
        raise HttpError(f"{type(error).__name__}: {error}"[:300]) from None
    finally:
        connection.close()


def _late(deadline_s: float) -> str:
    return f"no complete answer within {deadline_s:g} s"


@contextlib.contextmanager
def _ends_at(sock: socket.socket, due: float, late: threading.Event) -> Iterator[None]:
    """Shut the socket down at `due` (monotonic): its own timeout is for each read and lets a drip go on for ever."""

    def end() -> None:
        late.set()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, due - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _bounded(answer: http.client.HTTPResponse, most_bytes: int) -> bytes:
    read = bytearray()
    while piece := answer.read(_PIECE_BYTES):
        read += piece
        if len(read) > most_bytes:
            raise HttpError(f"an answer of more than {most_bytes >> 20} MiB")
    return bytes(read)
