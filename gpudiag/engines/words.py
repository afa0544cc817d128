"""The words of a command line after `--`, taken apart as the engine's own parser would."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from gpudiag.model.flags import Flag, FlagTable

_MOST_DIGITS: Final = 12
_NUMBER: Final = re.compile(r"-\d*\.?\d+(?:e[+-]?\d+)?", re.IGNORECASE)


class Given(Struct, frozen=True, kw_only=True):
    """One option as it was written. `flag` None: the engine does not know it, or nobody knows what it knows."""

    word: str
    name: str
    values: tuple[str, ...]
    flag: Flag | None


def taken_apart(words: Sequence[str], table: FlagTable | None) -> tuple[Given, ...]:
    """Every option among the words with its values. A word that begins with '-' and is no number is an option."""
    return tuple(_options(words, table))


def _options(words: Sequence[str], table: FlagTable | None) -> Iterator[Given]:
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not is_option(word):
            continue
        name, equals, tail = word.partition("=")
        values = [tail] if equals else []
        flag = table.find(word) if table is not None else None
        if not equals and (flag is None or flag.takes != "none"):
            several = flag is not None and flag.takes == "some"
            while index < len(words) and not is_option(words[index]) and (several or not values):
                values.append(words[index])
                index += 1
        yield Given(word=word, name=name, values=tuple(values), flag=flag)


def is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and _NUMBER.fullmatch(word) is None


def value_of(options: Sequence[Given], names: Sequence[str]) -> str | None:
    """The value of the last option that is one of these; '' for one without a value, None if it is not there."""
    found: str | None = None
    for one in options:
        if one.name in names or (one.flag is not None and set(one.flag.names) & set(names)):
            found = " ".join(one.values)
    return found


def number_of(options: Sequence[Given], names: Sequence[str]) -> int | None:
    """The same as a whole number; None where it is not there, or is no number that an engine would take."""
    said = value_of(options, names)
    return int(said) if said is not None and said.isdecimal() and len(said) <= _MOST_DIGITS else None
