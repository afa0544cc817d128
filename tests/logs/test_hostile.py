"""No input crashes the reader, hangs it, or reaches the terminal raw."""

from __future__ import annotations

import io
import time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudiag.logs.facts import read_stream
from gpudiag.logs.pickles import NotPlainError, load_plain
from gpudiag.model.report import Report
from tests.logs.support import raw, report_of

FRAGMENTS = [
    b"Traceback (most recent call last):",
    b"  + Exception Group Traceback (most recent call last):",
    b'  File "/a.py", line 3, in f',
    b"    x()",
    b"  | ",
    b"    | ValueError: a",
    b"  +-+---------------- 1 ----------------",
    b"ValueError: bad",
    b"RuntimeError: Error raised in subprocess:",
    b'"""',
    b"The above exception was the direct cause of the following exception:",
    b"During handling of the above exception, another exception occurred:",
    b"",
    b"\x1b[31m",
    b"\r",
    b"\x00\xff\xfe",
    b"(Worker_TP1 pid=5) ERROR 11-29 10:00:00 [a.py:1] ",
    b"[2026-11-29 10:00:00 TP1] ",
    b"[rank3]:[E1129 10:00:00.1 P.cpp:1] ",
    b"Process 12: VLLM::Worker_TP1",
    b'Thread 12 (active): "MainThread"',
    b"    f (a.py:3)",
    b"NCCL version 2.28.9 compiled with CUDA 13.0",
    b"  Ranks 0-999999999 have launched up to operation 3",
    b"NVRM: Xid (PCI:1): 79, x",
    b"x: Killed process 5 (python) total",
    b"a" * 5000,
    b"exit code: -9",
    b"Worker proc VllmWorker-1 died unexpectedly (exit code: -9)",
    b"server_args={'tp_size': 2}",
    b"The server is fired up",
    b"Fatal Python error: Segmentation fault",
    (
        b"Watchdog caught collective operation timeout: "
        b"WorkNCCL(SeqNum=99999999999999999999, OpType=A, NumelIn=1, NumelOut=1, Timeout(ms)=1)"
    ),
]

LINES = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=60)), max_size=60)
JOINED = st.lists(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=20)), min_size=1, max_size=3), max_size=50)


def harmless(report: Report) -> None:
    """It encodes, and holds no character that a terminal would act on."""
    text = msgspec.json.encode(report).decode()
    plain = msgspec.json.decode(text)
    stack: list[object] = [plain]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, str):
            assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in item), repr(item)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_lines(lines: list[bytes], end: bytes) -> None:
    harmless(report_of(read_stream(io.BytesIO(end.join(lines)))))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOINED)
def test_any_prefixes_in_front_of_anything(lines: list[list[bytes]]) -> None:
    harmless(report_of(read_stream(io.BytesIO(b"\n".join(b"".join(parts) for parts in lines)))))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["vllm_model_syntax", "sglang_truncated", "sglang_sigsegv_tp1"]))
def test_a_real_log_with_damage(data: st.DataObject, name: str) -> None:
    text = bytearray(raw(name)[:30_000])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 200))] = data.draw(st.binary(max_size=50))
    harmless(report_of(read_stream(io.BytesIO(bytes(text)))))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_a_pickle(data: bytes) -> None:
    try:
        load_plain(b"\x80\x02" + data)
    except NotPlainError:
        return


@pytest.mark.parametrize(
    "data",
    [
        b"Traceback (most recent call last):\n" * 20_000,
        (
            b"ValueError: x\n\nDuring handling of the above exception, another "
            b"exception occurred:\n\nTraceback (most recent call last):\n"
        )
        * 5_000,
        b"".join(b" " * n + b"+ Exception Group Traceback (most recent call last):\n" for n in range(2_000)),
        b"Traceback (most recent call last):\nRuntimeError: x:\n" * 10_000,
        b"Traceback (most recent call last):\n" + b'  File "a.py", line 1, in f\n' * 100_000 + b"RecursionError: x\n",
        b"\x1b[" * 500_000,
        b"\x1b]" * 500_000 + b"\n",
        b"\r" * 1_000_000,
        b"((((((((" * 100_000,
        b"ValueError: " + b"a." * 500_000,
        b"".join(
            b'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: %d' % n + b"m" * 30_000 + b"\n"
            for n in range(40)
        ),
        b"undefined symbol: ".join([b"a" * 100_000] * 20),
        b"NUMA node failed 1.2-b port " * 20_000 + b"cannot open shared object file error: Address already in use",
        b"Process 1: " + b"x" * 200_000 + b"\n",
        b"".join(
            b"(Worker_TP%d pid=%d) ERROR 11-29 10:00:00 [a.py:1] Traceback (most recent call last):\n" % (n, n)
            for n in range(20_000)
        ),
    ],
    ids=[
        "headers",
        "chain",
        "groups",
        "embedded",
        "frames",
        "csi",
        "osc",
        "returns",
        "brackets",
        "dots",
        "letters",
        "symbols",
        "words",
        "title",
        "speakers",
    ],
)
def test_bombs_end_in_time(data: bytes) -> None:
    began = time.monotonic()
    harmless(report_of(read_stream(io.BytesIO(data))))
    assert time.monotonic() - began < 30
