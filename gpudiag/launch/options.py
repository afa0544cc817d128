"""What the person who starts a server wants of the one who watches it."""

from __future__ import annotations

from msgspec import Struct


class SuperviseOptions(Struct, frozen=True, kw_only=True):
    """Everything else stands in the LaunchPlan. Times are in seconds."""

    tui: bool = True
    """Whether to draw on this terminal; without, lines on stderr."""
    detach: bool = False
    """Whether to leave the server to its supervisor as soon as it is ready."""
    canary: bool = True
    """Whether to ask the server for one token where it is not clear that it still answers."""
    canary_idle_s: float = 60.0
    """Between two of them while nobody talks to the server."""
    polite_s: float = 30.0
    """So long a server that was asked to end may take before it is killed."""
    patience: float = 1.0
    """Factor on how long silence lasts before a look or a question. What a look says is judged the same."""
