"""No text of a target makes redaction take long: every pattern is linear, or bounded, in what it scans."""

from __future__ import annotations

import time

import pytest
from msgspec import Struct

from gpudiag.session.redact import Redactor
from tests.redaction.planted import plants

LENGTH = 30_000
LIMIT_S = 2.0
"""Linear work takes 20 ms here, quadratic work minutes."""

PIECES = sorted(
    {p.around.replace("{}", "a1") for p in plants(0)}
    | {
        "a-",
        "a_",
        "a.",
        "key",
        "?key",
        "&key=",
        "ssh ",
        "/home/",
        "~a/",
        "a@",
        "a:",
        "1.",
        "::",
        "ab:",
        "text='",
        'prompt: "\\',
        "[",
        "'",
    }
    | {
        "api_key=[",
        "-----BEGIN A PRIVATE KEY-----",
        "://a",
        "eyJabcdef.",
        "Bearer ",
        "token ",
        "on node ",
        "user=",
        "Cookie:",
        "<0>",
        "--a-",
    }
)


class Note(Struct, frozen=True, kw_only=True):
    text: str


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_text_of_one_piece(piece: str) -> None:
    note = Note(text=(piece * LENGTH)[:LENGTH])
    began = time.process_time()
    Redactor().apply(note)
    assert time.process_time() - began < LIMIT_S, piece
