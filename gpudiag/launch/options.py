"""What the person who starts a server wants of the one who watches it."""

from __future__ import annotations

from msgspec import Struct


class SuperviseOptions(Struct, frozen=True, kw_only=True):
    """Everything else stands in the LaunchPlan."""

    tui: bool = True
    """Whether to draw on this terminal; without, lines on stderr."""
