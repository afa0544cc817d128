"""What gpudiag knows about one engine, and how titles are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from gpudiag.engines.frames import WaitFrame
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.server import Engine, Rank


class Recognised(Struct, frozen=True, kw_only=True):
    """What one process looks like on its own."""

    engine: Engine
    role: str
    rank: Rank = Rank()
    numbered: bool = True
    """Whether `rank` was read; False: it is what a rank without a number is where it is the only one."""
    root: bool = False
    """Whether it is the process that a user started."""


class Sizes(Struct, frozen=True, kw_only=True):
    """Number of ranks on all hosts and on this one, None where nothing says so."""

    world: int | None = None
    local: int | None = None


class EngineSpec(Struct, frozen=True, kw_only=True):
    """One engine. `recognise` looks at one process; `sizes` reads the number of ranks from a command line or environment."""

    name: Engine
    recognise: Callable[[Process], Recognised | None]
    sizes: Callable[[Process], Sizes]
    wait_frames: tuple[WaitFrame, ...] = ()


_COORDINATE: Final = re.compile(r"_?(TP|PP|DP|EP)(\d{1,5})(?=$|[_\s])")


def rank_of_title(title: str) -> Rank:
    """Read the coordinates of `Worker_DP0_PP1_TP3_EP3` or `scheduler_TP0`; a dimension that is not named is None."""
    found = {name.lower(): int(index) for name, index in _COORDINATE.findall(title)}
    return Rank(tp=found.get("tp"), pp=found.get("pp"), dp=found.get("dp"), ep=found.get("ep"))


def arguments(process: Process) -> tuple[str, ...]:
    """The words of a command line, also where a title was written over it as one padded string."""
    if not isinstance(process.cmdline, Ok):
        return ()
    return tuple(w for part in process.cmdline.value for w in part.split() if w)


def flag(words: tuple[str, ...], *names: str) -> str | None:
    """The value of the last of `--name value` or `--name=value` on a command line, as argparse would take it."""
    value: str | None = None
    for i, word in enumerate(words):
        name, equals, tail = word.partition("=")
        if name not in names:
            continue
        if equals:
            value = tail
        elif i + 1 < len(words):
            value = words[i + 1]
    return value


def whole(text: str | None, default: int = 1) -> int:
    """A positive whole number from a flag, else `default`."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 and 0 < int(text) < 1_000_000 else default
