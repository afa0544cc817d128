"""What PyTorch's flight recorder kept of the collectives of all ranks, compared."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FlightProblemKind = Literal["missing", "type", "size", "dtype", "state", "p2p"]


class FlightSide(Struct, frozen=True, kw_only=True):
    """Ranks that recorded the same thing at one place of a group's sequence, and where in the program they did it."""

    ranks: tuple[int, ...]
    operation: str
    sizes: str = ""
    dtypes: str = ""
    state: str = ""
    where: str = ""
    waited_s: float | None = None
    """Seconds from the call until the dump was written, for one that was not finished by then."""


class FlightProblem(Struct, frozen=True, kw_only=True):
    """The first place at which the ranks of a process group disagree.

    missing: some ranks never issued it. type, size, dtype: they issued different operations. state: the same operation
    finished on some and not on others. p2p: a send without its receive, or the reverse. `absent` are the ranks that are not
    in any side; `unread` those of the group whose dump was not there.
    """

    kind: FlightProblemKind
    group: str
    description: str
    sequence: int
    sides: tuple[FlightSide, ...]
    absent: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()


class FlightAnalysis(Struct, frozen=True, kw_only=True):
    """All dumps together. `records` is how many entries were compared, `skipped` names dumps that were refused and why."""

    ranks: tuple[int, ...]
    records: int
    problems: tuple[FlightProblem, ...]
    skipped: dict[str, str] = {}
    in_flight: dict[str, int] = {}
    """Per group: operations at the end of the record that finished on no rank."""
    written_at: tuple[float, float] | None = None
    """Unix time at which the first and the last of the dumps were written."""
    asked: bool = False
    """Whether the dumps were written for this look, and not found on disk."""
