"""Makes text from a target harmless and makes it fit.

A process title, a file name or a source line may hold anything, terminal escapes included. Nothing that is not a printing
character reaches the output as itself.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_PACKAGES: Final = re.compile(r"^/\S*?/(?:site-packages|dist-packages|lib/python3\.\d+(?!/(?:site|dist)-packages))/")
_PLACE: Final = re.compile(r"\((/[^\s()]+:\d+)\)")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that do not print, or that change how their neighbours print (direction marks, joiners)."""


def clean(text: str, *, limit: int = 2000) -> str:
    r"""The text on one line with every character that does not print shown as \xNN, and no longer than `limit`."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        # A byte that is no UTF-8, as os.fsdecode and errors='surrogateescape' carry it.
        code -= 0xDC00
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def ascii_only(text: str) -> str:
    """The text with everything outside ASCII escaped."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def short_file(file: str) -> str:
    """The file without the directory in which packages are installed: 'torch/utils/file_baton.py'."""
    return _PACKAGES.sub("", file, count=1)


def tidy(text: str) -> str:
    """A sentence in which places in installed packages, '(/long/site-packages/torch/x.py:3)', are shortened."""
    return _PLACE.sub(lambda m: f"({short_file(m[1])})", text)


def short_path(path: str, width: int, *, ellipsis: str = "…") -> str:
    """The last parts of a path that fit into `width` characters, at least its name."""
    if len(path) <= width:
        return path
    parts = path.split("/")
    kept = parts.pop()
    while parts and len(ellipsis) + 2 + len(parts[-1]) + len(kept) <= width:
        kept = f"{parts.pop()}/{kept}"
    return middle(f"{ellipsis}/{kept}", width, ellipsis=ellipsis)


def middle(text: str, width: int, *, ellipsis: str = "…") -> str:
    """The text cut in the middle to `width` characters; of a path the end, which says most, keeps two thirds."""
    if len(text) <= width:
        return text
    keep = width - len(ellipsis)
    if keep <= 0:
        return text[:width]
    tail = min(keep, (keep * 2 + 2) // 3)
    return text[: keep - tail] + ellipsis + text[len(text) - tail :]
