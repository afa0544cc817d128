"""What the terminal interface asks of its collector. It is not imported with the collector, which takes longer to load."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

LENGTH_BYTES: Final = 4
"""Of the length that stands before each message of the collector, big end first."""

MIN_INTERVAL_S: Final = 0.25
"""Between two looks. Drivers refresh their counters no more often, and polling them slows work on the GPU."""

Asked = Literal["look", "native", "interval"]


class Order(Struct, frozen=True, kw_only=True):
    """What to watch: the server that `pid` belongs to, or the one of a run directory."""

    pid: int | None = None
    directory: str | None = None
    interval_s: float = 1.0
    withhold: tuple[str, ...] = ()
    """Sources to do without (collect.process_reader.Source)."""
    ras: bool = False


class Wish(Struct, frozen=True, kw_only=True):
    """Something that the person asks for meanwhile."""

    what: Asked
    interval_s: float = 1.0
