"""What a look reads and what it leaves out."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpudiag.collect.process_reader import Source

StackSource = Literal["nonblocking", "pause", "native", "none"]


class LookOptions(Struct, frozen=True, kw_only=True):
    """`stacks`: 'pause' and 'native' stop the target while they read. `deadline_s` is for each source and process.

    Sources in `withhold` are left out and reported as such. Without `locals` there are no lock uses and no polled files.
    `ras` asks NCCL's service also where memory tells. `flight_recorder` asks the ranks for a dump; without it only dumps
    that lie on disk already are read.
    """

    stacks: StackSource = "nonblocking"
    locals: bool = True
    deadline_s: float = 3.0
    withhold: frozenset[Source] = frozenset()
    ras: bool = False
    flight_recorder: bool = False
