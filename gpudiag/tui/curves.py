"""Curves and bars of one row, in blocks or in ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
LEVELS: Final = "_.-=+*%#"
"""The same eight steps without Unicode: denser characters for higher values."""


def curve(values: Sequence[float | None], width: int, *, top: float, plain: bool) -> str:
    """The last `width` values as columns of eight steps up to `top`; blank where nothing was read. Right-aligned."""
    steps = LEVELS if plain else BLOCKS
    shown = list(values)[-width:]
    drawn = "".join(" " if v is None else steps[_step(v, top, len(steps))] for v in shown)
    return drawn.rjust(width)


def bar(share: float, width: int, *, plain: bool) -> str:
    """A bar that fills `share` (0 to 1) of `width`."""
    full = round(max(0.0, min(1.0, share)) * width)
    return ("#" if plain else "━") * full + ("." if plain else "─") * (width - full)


def _step(value: float, top: float, count: int) -> int:
    return max(0, min(count - 1, int(value / top * count))) if top > 0 else 0
