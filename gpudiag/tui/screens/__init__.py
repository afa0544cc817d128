"""One screen, one module: a pure function from a View to rows."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final, cast

from gpudiag.tui.actions import ScreenName
from gpudiag.tui.view import Drawn, View

SORTS: Final[dict[str, tuple[str, ...]]] = {
    "overview": ("rank", "state", "cpu%", "W", "nccl"),
    "gpus": ("gpu", "W", "sm%", "temp"),
}
"""Columns that a screen can be sorted by, the first being how it is without."""


def draw_screen(name: ScreenName, view: View) -> Drawn:
    """Draw it. Its module is imported when it is first shown: the first screen is to be there at once."""
    draw = cast("Callable[[View], Drawn]", importlib.import_module(f"gpudiag.tui.screens.{name}").draw)
    return draw(view)
