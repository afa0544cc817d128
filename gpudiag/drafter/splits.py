"""Where in the texts a drafter does badly: in reasoning or answer, near the beginning or far from it, in which domain."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gpudiag.doctor import model_files
from gpudiag.doctor.reads import bounded
from gpudiag.drafter import walk
from gpudiag.drafter.walk import Round, Word
from gpudiag.model.replay import Section, Text

_TOKENIZER_BYTES: Final = 256 << 20
_CLOSING: Final = frozenset({"</think>", "</thinking>", "◁/think▷", "[/THINK]", "</seed:think>"})
"""Tokens that end the reasoning: DeepSeek, Qwen and most others; Kimi; Magistral; Seed."""
_FEWEST: Final = 20
"""Rounds below which a part is not shown: the interval of its length is wider than what there is to tell."""
_FEWEST_OF_ONE: Final = 5
"""The same for one text's share of a part."""
_HARDLY: Final = 0.1
"""Accepted drafts a round below which a text counts as lost: an undertrained drafter accepts three times as much."""


def closing_ids(target: str) -> frozenset[int]:
    """Ids of the tokens that end reasoning, from the target's tokenizer.json; empty where it has none or cannot be read."""
    try:
        read = json.loads(bounded(Path(target, "tokenizer.json"), _TOKENIZER_BYTES))
        added = read.get("added_tokens") if isinstance(read, dict) else None
    except (OSError, ValueError, RecursionError):
        return frozenset()
    entries = added if isinstance(added, list) else []
    return frozenset(
        e["id"]
        for e in entries
        if isinstance(e, dict) and isinstance(e.get("id"), int) and model_files.text(e.get("content")) in _CLOSING
    )


def split(
    words: Sequence[Word], texts: Sequence[Text], steps: int, *, greedy: bool, closing: frozenset[int]
) -> tuple[Section, ...]:
    """DraftCounts of the replayed walk by section, position and domain; parts with too few rounds are left out."""
    parts: dict[tuple[str, str], list[list[int]]] = defaultdict(list)
    for word, text in zip(words, texts, strict=True):
        of_text: dict[tuple[str, str], list[int]] = defaultdict(list)
        for one in walk.of_text(word, text, steps, greedy=greedy):
            for key in _keys(one, text, closing):
                of_text[key].append(one.accepted)
        for key, accepted in of_text.items():
            parts[key].append(accepted)
    order = sorted(parts, key=lambda key: (_BY.index(key[0]), _first_number(key[1]), key[1]))
    found = [_section(by, name, parts[by, name], steps) for by, name in order]
    found = [s for s in found if s.acceptance.rounds >= _FEWEST]
    # One part says nothing that the whole does not.
    return tuple(s for s in found if sum(o.by == s.by for o in found) > 1)


def _section(by: str, name: str, of_texts: Sequence[Sequence[int]], steps: int) -> Section:
    telling = [accepted for accepted in of_texts if len(accepted) >= _FEWEST_OF_ONE]
    return Section(
        by=by,
        name=name,
        acceptance=walk.acceptance([a for accepted in of_texts for a in accepted], steps),
        texts=len(telling),
        lost=sum(sum(accepted) < _HARDLY * len(accepted) for accepted in telling),
    )


_BY: Final = ("section", "position", "domain")


def _keys(one: Round, text: Text, closing: frozenset[int]) -> Iterator[tuple[str, str]]:
    place = text.prompt + one.start
    yield "position", _range(place)
    if text.domain:
        yield "domain", text.domain
    if closing and not closing.isdisjoint(text.answer):
        end = next(i for i, token in enumerate(text.answer) if token in closing)
        yield "section", "reasoning" if one.start <= end else "answer"


def _range(place: int) -> str:
    """Powers of two from 64 on."""
    edge = 64
    while place >= edge:
        edge *= 2
    return f"{edge // 2 if edge > 64 else 0}-{edge - 1}"


def _first_number(name: str) -> int:
    head = name.partition("-")[0]
    return int(head) if head.isdigit() else 0
