"""Recorded bodies of both engines, servers that misbehave, and what two readings say together."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudiag.collect.http_ask import HttpError, ask, base_url
from gpudiag.collect.metrics import parse_metrics, read_metrics
from gpudiag.collect.token_counts import count_tokens
from gpudiag.errors import UsageError
from gpudiag.model.metrics import ServerMetrics, SpeculationCounts, serving_between
from gpudiag.model.reading import Failed, Ok, Unavailable

RECORDED = Path(__file__).parent.parent / "drafter" / "recorded"


def recorded(name: str, at: float = 0.0) -> ServerMetrics:
    metrics = parse_metrics((RECORDED / name).read_text(), at)
    assert metrics is not None
    return metrics


@contextlib.contextmanager
def answering(*pieces: bytes, hold: bool = False) -> Iterator[str]:
    """A server that answers every connection with `pieces`; with `hold` it keeps the last one open, a byte each 50 ms."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    peer, _ = listening.accept()
                    with peer:
                        peer.recv(1 << 16)
                        for piece in pieces:
                            peer.sendall(piece)
                        while hold and not ended.wait(0.05):
                            peer.sendall(b"x")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def http(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def test_vllm_counts_drafts_and_tokens_by_position() -> None:
    metrics = recorded("vllm-0.24.0-eagle3-metrics.txt")
    assert (metrics.engine, metrics.running, metrics.waiting, metrics.finished) == ("vllm", 0, 0, 5)
    assert metrics.generated_tokens == metrics.generated_live == 1664
    assert metrics.speculation == SpeculationCounts(rounds=1184, drafted=3552, accepted=477, accepted_at=(294, 113, 70))


def test_sglang_says_gauges_and_verify_calls() -> None:
    metrics = recorded("sglang-0.5.17-eagle3-metrics.txt")
    assert (metrics.engine, metrics.running, metrics.waiting, metrics.finished) == ("sglang", 0, 0, 5)
    assert (metrics.generated_tokens, metrics.generated_live, metrics.tokens_per_s) == (1664, 1667, 0)
    assert metrics.speculation == SpeculationCounts(rounds=1212, length=1, rate=0, steps=3, draft_tokens=4)


def test_a_server_without_speculation_has_none() -> None:
    body = (RECORDED / "sglang-0.5.17-eagle3-metrics.txt").read_text()
    silent = "\n".join(line for line in body.splitlines() if ":spec_" not in line)
    zeros = 'sglang:spec_accept_length{tp_rank="0"} 0.0\nsglang:spec_num_steps{tp_rank="0"} 0.0\n'
    for text in (silent, silent + "\n" + zeros):
        metrics = parse_metrics(text, 0.0)
        assert metrics is not None
        assert metrics.speculation is None


def test_replicas_are_added_and_ranks_of_one_replica_are_not() -> None:
    series = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",pp_rank="0",tp_rank="{tp}"}} {n}\n'
        for dp, tp, n in ((0, 0, 3), (0, 1, 3), (1, 2, 4), (1, 3, 4))
    )
    metrics = parse_metrics(series, 0.0)
    assert metrics is not None
    assert metrics.running == 7
    engines = 'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="1"} 5\n'
    metrics = parse_metrics(engines, 0.0)
    assert metrics is not None
    assert metrics.running == 7


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running NaN",
        "vllm:num_requests_running -Inf",
        "vllm:num_requests_running 1e999",
        "vllm:num_requests_running -3",
        "vllm:num_requests_running",
        'vllm:num_requests_running{engine="0" 3',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="99999999999999999999"} 3',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="²"} 3',
        "sglang:num_running_reqs 5",
        "\x1b]0;owned\x07vllm:num_requests_running 9",
    ],
)
def test_a_line_that_is_wrong_costs_only_itself(line: str) -> None:
    metrics = parse_metrics(f"vllm:num_requests_waiting 2\n{line}\nvllm:spec_decode_num_drafts 1 1700000000\n", 0.0)
    assert metrics is not None
    assert (metrics.running, metrics.waiting) == (None, 2)
    assert metrics.speculation == SpeculationCounts(rounds=1)


def test_a_line_without_end_is_read_in_linear_time() -> None:
    started = time.perf_counter()
    parse_metrics('vllm:num_requests_running{a="' + '\\"' * 500_000 + "\nvllm:x{" + 'a="b",' * 200_000 + "} 1", 0.0)
    assert time.perf_counter() - started < 5


def test_rates_come_from_what_moved_between_two_readings() -> None:
    before = recorded("vllm-0.24.0-eagle3-metrics.txt", at=100.0)
    counts = SpeculationCounts(rounds=1284, drafted=3852, accepted=617, accepted_at=(364, 163, 90))
    after = msgspec.structs.replace(before, at=110.0, running=2.0, generated_live=1904.0, speculation=counts)
    serving = serving_between(before, after)
    assert (serving.running, serving.tokens_per_s) == (2, 24)
    assert serving.acceptance_length == pytest.approx(2.4)
    assert serving.acceptance_rate == pytest.approx(140 / 300)


def test_a_restart_between_two_readings_gives_no_rate() -> None:
    before = recorded("vllm-0.24.0-eagle3-metrics.txt", at=100.0)
    after = ServerMetrics(engine="vllm", at=110.0, generated_live=5.0, speculation=SpeculationCounts(rounds=1, accepted=0))
    serving = serving_between(before, after)
    assert (serving.tokens_per_s, serving.acceptance_length) == (None, None)


def test_the_gauges_of_sglang_serve_where_nothing_is_counted() -> None:
    metrics = recorded("sglang-0.5.17-eagle3-metrics.txt")
    assert serving_between(None, metrics).acceptance_length == 1
    assert serving_between(metrics, metrics).acceptance_rate == 0


def test_a_server_that_answers_is_read() -> None:
    with answering(http((RECORDED / "vllm-0.24.0-eagle3-metrics.txt").read_bytes())) as base:
        reading = read_metrics(base)
    assert isinstance(reading, Ok)
    assert reading.value.generated_tokens == 1664


def test_a_server_without_metrics_says_what_to_do() -> None:
    with answering(http(b"{}", "404 Not Found")) as base:
        reading = read_metrics(base)
    assert isinstance(reading, Unavailable)
    assert "--enable-metrics" in reading.help
    with answering(http(b"# nothing\n")) as base:
        assert isinstance(read_metrics(base), Unavailable)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    reading = read_metrics(f"http://127.0.0.1:{port}")
    assert isinstance(reading, Failed)
    assert "nobody listens" in reading.error


@pytest.mark.parametrize("pieces", [(), (b"HTTP/1.1 200 OK\r\nX-Slow: ",), (b"HTTP/1.1 200 OK\r\n\r\n",)])
def test_an_answer_that_drips_ends_at_the_deadline(pieces: tuple[bytes, ...]) -> None:
    with answering(*pieces, hold=True) as base:
        started = time.monotonic()
        reading = read_metrics(base, deadline_s=0.5)
        assert time.monotonic() - started < 5
    assert isinstance(reading, Failed)
    assert "within 0.5 s" in reading.error


def test_an_answer_without_end_is_cut() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * (3 << 20)) as base, pytest.raises(HttpError, match="more than 1 MiB"):
        ask(base, deadline_s=10, most_bytes=1 << 20)


@pytest.mark.parametrize("garbage", [b"", b"\x00\xff" * 40, b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 500 + b"\r\n"])
def test_what_is_no_http_is_one_line(garbage: bytes) -> None:
    with answering(garbage) as base:
        reading = read_metrics(base)
    assert isinstance(reading, Failed)
    assert "\n" not in reading.error


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("http://node-1:8000/v1/", "http://node-1:8000"),
        ("https://[::1]:8000/metrics", "https://[::1]:8000"),
    ],
)
def test_addresses_as_people_type_them(typed: str, meant: str) -> None:
    assert base_url(typed) == meant


@pytest.mark.parametrize(
    "typed", ["", "http://", "ftp://x", "http://x:99999", "http://a b", "http://x\r\nHost: y", "http://x/?a=b"]
)
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(UsageError):
        base_url(typed)


@pytest.mark.parametrize("rest", ["node-1:8000", "node-1:99999", "a b", "", "[::1"])
def test_a_password_in_an_address_is_refused_and_not_repeated(rest: str) -> None:
    with pytest.raises(UsageError) as raised:
        base_url(f"http://me:hunter2@{rest}")
    assert "hunter2" not in raised.value.message + raised.value.help


def counting(*numbers: int) -> list[bytes]:
    """What a vLLM that has generated so many tokens answers, one answer after the other."""
    return [http(b'vllm:prompt_tokens_total{engine="0"} 7\nvllm:generation_tokens_total{engine="0"} %d\n' % n) for n in numbers]


@contextlib.contextmanager
def answering_in_turn(answers: list[bytes]) -> Iterator[str]:
    """The address of a server that gives each answer once, and the last one for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listening.accept()
                    with peer:
                        peer.recv(1 << 16)
                        peer.sendall(answers[0] if len(answers) == 1 else answers.pop(0))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_token_counters_are_asked_until_they_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with answering_in_turn(counting(100, 100, 103)) as address:
        reading = count_tokens(address, None)
    assert isinstance(reading, Ok)
    assert (reading.value.before, reading.value.after, reading.value.moved) == (107, 110, True)


def test_token_counters_that_stand_still_are_given_up() -> None:
    with answering_in_turn(counting(100)) as address:
        reading = count_tokens(address, None, longest_s=0.2)
    assert isinstance(reading, Ok)
    assert (reading.value.after, reading.value.moved) == (107, False)
    assert reading.value.over_s >= 0.2


def test_a_server_that_counts_no_tokens_or_fewer_than_before_gives_no_answer() -> None:
    for answers in ([http(b"vllm:num_requests_running 1\n")], counting(5, 3)):
        with answering_in_turn(answers) as address:
            reading = count_tokens(address, None)
        assert isinstance(reading, Unavailable)
        assert "does not count tokens at each step" in reading.reason


def test_a_hung_server_is_not_waited_for_and_one_elsewhere_not_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert isinstance(count_tokens(address, None, deadline_s=0.3), Failed)
        elsewhere = count_tokens(address, 1)
    assert isinstance(elsewhere, Unavailable)
    assert "another network namespace" in elsewhere.reason
