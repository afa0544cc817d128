"""Which parts of a block are worth a look: a search for literals, before any decoding or regular expression.

ahocorasick_rs looks for up to 64 literals in one pass with vector instructions (the 'Teddy' search of the Rust crate
aho-corasick): 0.2 s per GB for 48 literals, where `bytes.find` takes 0.15 to 0.5 s per GB for each of them (CPython 3.11)
and `re` 50 s per GB for all. Above 64 it falls back to an automaton at 2 s per GB, so that the list is searched in groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from gpudiag.logs.engines.base import WORKING
from gpudiag.logs.events import SIGNS, STEPS

TRACEBACK: Final = b" (most recent call "
"""Python's tracebacks and faulthandler's threads in one."""
_FIXED: Final = (
    TRACEBACK,
    b"Fatal Python error",
    b"Thread 0x",
    b"Process ",
    b"[stderr] Error: Failed to get",
    b"NCCL version ",
    b"NVIDIA-SMI ",
    b"Collecting environment information",
    b"tensor_parallel_size",
    b"tp_size",
    b"LLM engine (v",
    b"Started server process",
    b"  version ",
    b"world_size=",
)

ENDS: Final = tuple(dict.fromkeys((*_FIXED, *(s.anchor.encode() for s in SIGNS), *(s.anchor.encode() for s in STEPS))))
"""Everything that means something; for the two ends of a log, where a start-up and a death are told."""
MIDDLE: Final = tuple(a for a in ENDS if a not in {s.anchor.encode() for s in STEPS if s.order >= WORKING})
"""For the middle of a large log: all of it but the lines that a busy server writes all the time."""
MOST_LINES: Final = 1000
"""So often a literal counts in the middle of one log; what is said more often is no news, and reading it takes time."""
MOST_READ_LINES: Final = 300_000
"""So many lines are read in the middle of one log, nearly all of them of tracebacks: at 40,000 lines a second this is a matter of
seconds, where a gigabyte of the same exception would take minutes."""
MOST_LINES_OF_ALL: Final = 1_000_000
"""So many lines are read of all sources together before the rest of them is only searched for what is said in one line."""
_GROUP: Final = 48


class Finder:
    """Finds literals in blocks. With a `limit`, one that was found more often is left out from then on, but for tracebacks."""

    def __init__(self, literals: Collection[bytes], limit: int | None = None) -> None:
        self._limit = limit
        self._count: Counter[bytes] = Counter()
        self.left_out: list[bytes] = []
        self._arm(tuple(literals))

    def _arm(self, literals: tuple[bytes, ...]) -> None:
        self._groups = [literals[i : i + _GROUP] for i in range(0, len(literals), _GROUP)]
        # The vector search exists for 'leftmost first' only. It skips a match inside another one, which is on the same line.
        self._searches = [BytesAhoCorasick(group, matchkind=MatchKind.LeftmostFirst) for group in self._groups]

    def offsets(self, block: bytes) -> list[int]:
        """Where a literal starts, in ascending order; of two that overlap perhaps only the first."""
        found = [
            (start, group[index])
            for group, search in zip(self._groups, self._searches, strict=True)
            for index, start, _ in search.find_matches_as_indexes(block)
        ]
        if self._limit is not None and found:
            self._thin(found, self._limit)
        return sorted(start for start, _ in found)

    def _thin(self, found: list[tuple[int, bytes]], limit: int) -> None:
        self._count.update(literal for _, literal in found)
        loud = [a for a, n in self._count.items() if n > limit and a != TRACEBACK and a not in self.left_out]
        self.leave_out(loud)

    def leave_out(self, literals: Collection[bytes]) -> None:
        """Do not look for these any more."""
        if literals:
            self.left_out += literals
            self._arm(tuple(a for group in self._groups for a in group if a not in literals))


class Hits:
    """The next interesting offset of a block."""

    def __init__(self, offsets: list[int]) -> None:
        self._offsets = offsets
        self._next = 0

    def after(self, position: int) -> int:
        """The first hit at or after `position`, or -1. Positions are asked for in ascending order."""
        while self._next < len(self._offsets):
            if self._offsets[self._next] >= position:
                return self._offsets[self._next]
            self._next += 1
        return -1
