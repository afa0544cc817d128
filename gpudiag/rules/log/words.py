"""How a title repeats what somebody else said: whole sentences, and files without the directory of all packages."""

from __future__ import annotations

import re
from typing import Final

_PACKAGES: Final = re.compile(r"^/\S*?/(?:site-packages|dist-packages)/")
_SENTENCE_END: Final = re.compile(r"[.;!?](?=\s)")


def said(text: str, limit: int = 160) -> str:
    """The first line, cut to at most `limit` characters: at the end of a sentence if that keeps a third, else at a word."""
    line = text.strip().partition("\n")[0].strip()
    if len(line) <= limit:
        return line.rstrip(" .:;,")
    ends = [m.start() for m in _SENTENCE_END.finditer(line, 0, limit + 1) if m.start() >= limit // 3]
    if ends:
        return line[: ends[-1]].rstrip(" .:;,")
    return line[: limit - 1].rpartition(" ")[0].rstrip(" .:;,") + "…" if " " in line[: limit - 1] else line[: limit - 1] + "…"


def short_file(file: str) -> str:
    """'vllm/v1/worker/cpu_worker.py' for an installed file, any other as it is."""
    return _PACKAGES.sub("", file, count=1)
