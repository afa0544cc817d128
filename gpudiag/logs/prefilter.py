"""Which parts of a block are worth a look: plain substring search, before any decoding or regular expression.

bytes.find runs at 2 to 7 GB/s for literals of this length (CPython 3.11), a regular expression of the same literals at
0.2 GB/s, so one search per literal wins up to some dozens of them. Large logs are searched for a short list in their
middle and for the full list at both ends, where a start-up or a death is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from gpudiag.logs.events import SIGNS, STEPS

_FIXED: Final = (
    b" (most recent call ",
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
_FIXED_EVERYWHERE: Final = (b" (most recent call ",)
"""Python's tracebacks and faulthandler's threads in one."""

FULL: Final = tuple(dict.fromkeys((*_FIXED, *(s.anchor.encode() for s in SIGNS), *(s.anchor.encode() for s in STEPS))))
"""Everything that means something; for the ends of a log."""
SHORT: Final = tuple(dict.fromkeys((*_FIXED_EVERYWHERE, *(s.anchor.encode() for s in SIGNS if s.everywhere and not s.only_in))))
"""What must not be missed in the middle of a very large log, whoever wrote it."""


def short_for(forms: Collection[str]) -> tuple[bytes, ...]:
    """SHORT, and what only the writers of these forms of line (grammar.Prefix.form) say."""
    return SHORT + tuple(s.anchor.encode() for s in SIGNS if s.everywhere and s.only_in in forms)


class Hits:
    """The next interesting offset of a block, found on demand. Each literal is searched for only once past each of its hits."""

    def __init__(self, block: bytes, literals: Iterable[bytes]) -> None:
        self._block = block
        first = ((block.find(literal), literal) for literal in literals)
        self._next = {literal: at for at, literal in first if at >= 0}

    def after(self, position: int) -> int:
        """The first hit at or after `position`, or -1."""
        best = -1
        for literal, known in list(self._next.items()):
            at = known if known >= position else self._block.find(literal, position)
            if at < 0:
                del self._next[literal]
                continue
            self._next[literal] = at
            if best < 0 or at < best:
                best = at
        return best
