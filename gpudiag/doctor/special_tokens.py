"""Tokens that a model emits by its own rules rather than as text: ends of a turn, reasoning and tool tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpudiag.doctor.model_files import number, object_in
from gpudiag.doctor.reads import bounded
from gpudiag.model.modelfiles import SpecialToken

_TEMPLATE_BYTES: Final = 1 << 20
_MAX_TOKENS: Final = 4096
_LONGEST_ID: Final = 10
_EMITTED: Final = re.compile(
    r"think|reason|tool|call|channel|message|analysis|final|end|eot|eos|im_end|return|section|arg", re.IGNORECASE
)
"""Names of tags that models write themselves. Tags for images, audio, padding and fill-in-the-middle are only read."""


def special_tokens(directory: Path) -> tuple[SpecialToken, ...]:
    """Ends of generation, and added tokens of the tokenizer that the chat template writes; empty where no file says so."""
    ends = _ends(directory)
    added = _added(directory)
    template = chat_template(directory) or ""
    found = {i: SpecialToken(id=i, text=added.get(i, ""), ends=True) for i in sorted(ends)}
    for i, words in sorted(added.items())[:_MAX_TOKENS]:
        if i not in found and words in template and _EMITTED.search(words):
            found[i] = SpecialToken(id=i, text=words, ends=False)
    return tuple(found.values())


def chat_template(directory: Path) -> str | None:
    """The chat template of a model directory: a file of its own, or a field of tokenizer_config.json."""
    alone = directory / "chat_template.jinja"
    if alone.is_file():
        return bounded(alone, _TEMPLATE_BYTES).decode("utf-8", "replace")
    written = _object(directory / "tokenizer_config.json").get("chat_template")
    if isinstance(written, list):
        named = {str(one.get("name")): one.get("template") for one in written if isinstance(one, dict)}
        written = named.get("default", next(iter(named.values()), None))
    return written if isinstance(written, str) else None


def _ends(directory: Path) -> frozenset[int]:
    for name in ("generation_config.json", "config.json"):
        value = _object(directory / name).get("eos_token_id")
        ids = [n for one in (value if isinstance(value, list) else [value]) if (n := number(one)) is not None]
        if ids:
            return frozenset(ids)
    return frozenset()


def _added(directory: Path) -> dict[int, str]:
    return dict(_entries(directory))


def _entries(directory: Path) -> Iterator[tuple[int, str]]:
    decoder = _object(directory / "tokenizer_config.json").get("added_tokens_decoder")
    for key, one in (decoder if isinstance(decoder, dict) else {}).items():
        if key.isdecimal() and len(key) < _LONGEST_ID and isinstance(one, dict) and isinstance(one.get("content"), str):
            yield int(key), one["content"]
    listed = _object(directory / "tokenizer.json").get("added_tokens")
    for one in listed if isinstance(listed, list) else []:
        i = number(one.get("id")) if isinstance(one, dict) else None
        if i is not None and isinstance(one.get("content"), str):
            yield i, one["content"]


def _object(path: Path) -> Mapping[str, Any]:
    """A JSON object, empty where there is none: what a tokenizer lacks is no fault of a drafter."""
    try:
        return object_in(path)
    except (OSError, ValueError):
        return {}
