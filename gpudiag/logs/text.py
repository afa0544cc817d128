"""Bytes of a log into clean text: no escape sequence, control character or overwritten progress bar gets any further."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b[ -/]*[0-~]?"
)
_DROPPED: Final = {c: None for c in (*range(0x20), *range(0x7F, 0xA0)) if c != 0x09}
_DROPPED.update(dict.fromkeys((*range(8234, 8239), *range(8294, 8298), 8206, 8207, 1564, 65279)))

_GLUED: Final = re.compile(r"(?<=it/s\])(?=\S)|(?<=s/it\])(?=\S)|(?<=\S)(?=\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d)")
"""Where a log line was written straight after text that had not ended its line: a progress bar, a library's last words."""


def printable(text: str) -> str:
    """`text` without terminal escapes, control characters and direction marks; tabs stay."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_DROPPED)


def segments(raw: bytes) -> list[str]:
    """The lines a terminal would have shown for one line of the file: carriage returns and progress bars taken apart."""
    text = raw.decode("utf-8", "replace")
    parts = text.split("\r") if "\r" in text else [text]
    if len(parts) > _MOST_SEGMENTS:
        parts = parts[-_MOST_SEGMENTS:]
    out: list[str] = []
    for part in parts:
        clean = printable(part)
        if "it/s]" in clean or "s/it]" in clean or "[20" in clean[1:]:
            out.extend(p for p in _GLUED.split(clean) if p)
        elif clean or len(parts) == 1:
            out.append(clean)
    return out or [""]


_MOST_SEGMENTS: Final = 64
