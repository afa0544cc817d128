"""Numbers and names as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: int) -> str:
    """'64 MiB': bytes in the largest unit that leaves at least 1."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def listing(items: Sequence[str], limit: int = 4) -> str:
    """'a, b and 3 more'."""
    if len(items) <= limit:
        return ", ".join(items)
    return f"{', '.join(items[:limit])} and {len(items) - limit} more"


def plural(count: int, one: str, many: str = "") -> str:
    """'1 GPU', '2 GPUs'."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing: '580.159.04' is (580, 159, 4), '2.30.4+cu13' is (2, 30, 4)."""
    numbers: list[int] = []
    for part in text.partition("+")[0].split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
