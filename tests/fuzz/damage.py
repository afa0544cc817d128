"""One damaged input after another, each made from a seed."""

from __future__ import annotations

import random
import resource
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fuzz.parsers import Parser

MOST_BYTES = 300_000
SLOW_S = 5.0
"""Processor time for one input; none of the samples takes a tenth of it."""

ODD = (
    b"", b"\0", b"\xff\xfe", b"\x1b]0;x\x07", b"\x1b[2J", b"-1", b"99999999999999999999999999", b"1e999", b"NaN", b"null", b"[]",
    b"{}", b"\n", b"\r", b" ", b"(", b")", b'"', b"'", b"\\u0000", b"\xed\xa0\x80", b"../../etc/passwd", b"%s%n", b"true", b"0x",
    b"[" * 3000, b'{"a":' * 2000, b"A" * 5000, "\u202e\u2066".encode(), b"\x80\x02c__builtin__\neval\n", b"cos\nsystem\n",
)  # fmt: skip

DEEP = (
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"(" * 100_000,
    b"\x80\x02" + b"](" * 100_000,
    b"a = " + b"[" * 50_000,
    b"\x81\xa1a" + b"\x91" * 100_000,
    zlib.compress(b"\x82\xa4type\xa4note\xa1a" + b"\x91" * 100_000),
)
"""Nested far deeper than any of these formats is."""

MEMORY_BYTES = 2 << 30
"""More than this, and it is a MemoryError: a few bytes may ask for any amount."""


class SlowError(Exception):
    """An input took longer than any may."""


def damaged(samples: tuple[bytes, ...], rng: random.Random) -> bytes:
    """A sample with a few bytes, fields or stretches changed, cut, doubled or taken from another sample."""
    data = bytearray(rng.choice(samples))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8, 30))):
        at = rng.randrange(len(data) + 1)
        size = rng.choice((1, 1, 2, 4, 8, 60, 1000))
        match rng.randrange(8):
            case 0:
                data[at : at + 1] = bytes((rng.randrange(256),))
            case 1:
                data[at : at + size] = b""
            case 2:
                data[at:at] = data[at : at + size] * rng.choice((1, 2, 50))
            case 3:
                data[at:at] = rng.choice(ODD)
            case 4:
                data[at : at + size] = rng.choice(ODD)
            case 5:
                other = rng.choice(samples)
                start = rng.randrange(len(other) + 1)
                data[at : at + size] = other[start : start + size]
            case 6:
                del data[at:]
            case _:
                _number(data, at, rng)
        del data[MOST_BYTES:]
    return bytes(data)


def _number(data: bytearray, at: int, rng: random.Random) -> None:
    """Change the next digits after a place: to none, to many, to a sign."""
    while at < len(data) and not 48 <= data[at] <= 57:
        at += 1
    end = at
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    data[at:end] = rng.choice(
        (b"", b"-1", b"0", b"1e400", b"9" * 25, b"\xd9\xa3", "²".encode(), b"0x10", b"1_0", b"18446744073709551616")
    )


@contextmanager
def limited_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def attack(parser: Parser, seed: int) -> Exception | None:
    """Feed one input; what was raised that nobody expects, or SlowError."""
    return feed(parser, damaged(parser.samples, random.Random(seed)))  # noqa: S311, inputs need to be repeatable, not secret


def feed(parser: Parser, data: bytes) -> Exception | None:
    """The same for this input."""
    began = time.thread_time()
    try:
        with limited_memory(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parser.reads(data)
    except parser.raises:
        pass
    except Exception as error:  # noqa: BLE001, a fuzzer is there to see every kind of failure
        return error
    spent = time.thread_time() - began
    return SlowError(f"{spent:.1f} s for {len(data)} bytes") if spent > SLOW_S else None
