"""Files of texts: one answer of a server a line, as token ids, with what its drafts did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from gpudiag.errors import UsageError
from gpudiag.model.decoding import decode_json
from gpudiag.model.replay import TEXTS_SCHEMA, Text

_MOST_BYTES: Final = 4 << 30
_MOST_IDS: Final = 1 << 20
_MOST_VOCABULARY: Final = 1 << 24
_MOST_DRAFTS: Final = 64
_HELP: Final = (
    'a line is {"ids": [...], "prompt": tokens of the prompt}; gpudiag drafter replay URL --save FILE writes such files'
)
_encoder = msgspec.json.Encoder()


def read(path: Path) -> tuple[Text, ...]:
    """The texts of a file. Raises UsageError with the line that is none."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path}: more than {_MOST_BYTES >> 30} GiB", help="head -n 1000 makes it smaller")
        with path.open("rb") as file:
            texts = tuple(_checked(line, number, path) for number, line in enumerate(file, 1) if line.strip())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", help=f"ls -l {path}") from None
    if not texts:
        raise UsageError(f"{path}: no text in it", help=_HELP)
    return texts


def _checked(line: bytes, number: int, path: Path) -> Text:
    try:
        text = decode_json(line, Text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}:{number}: {str(error)[:200]}", help=_HELP) from None
    fault = problem(text)
    if fault:
        raise UsageError(f"{path}:{number}: {fault}", help=_HELP)
    return text


def problem(text: Text) -> str | None:
    """Why this cannot be replayed; None if it can."""
    if text.schema != TEXTS_SCHEMA:
        return f"schema {text.schema[:40]!r}, not {TEXTS_SCHEMA}"
    if not 0 < text.prompt <= len(text.ids) <= _MOST_IDS:
        return f"{len(text.ids)} ids and a prompt of {text.prompt}"
    if not all(0 <= i < _MOST_VOCABULARY for i in text.ids):
        return "an id that no vocabulary has"
    if any(n < 0 for counts in (text.rounds, text.histogram) for n in counts or ()):
        return "a negative count"
    if any(n > _MOST_DRAFTS for n in text.rounds or ()) or len(text.histogram or ()) > _MOST_DRAFTS + 1:
        return f"a round with more than {_MOST_DRAFTS} accepted drafts"
    return None


def lines(texts: Iterable[Text]) -> Iterator[str]:
    for text in texts:
        yield _encoder.encode(text).decode() + "\n"
