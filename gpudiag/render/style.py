"""How a state, a severity and a confidence look: a glyph, a word and a colour, never the colour alone.

Colours are those of Okabe and Ito (2008), which people with any of the common forms of colour blindness tell apart.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

VERMILION: Final = "#D55E00"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
PINK: Final = "#CC79A7"
PLAIN: Final = ""
DIM: Final = "dim"
BOLD: Final = "bold"


class Look(Struct, frozen=True, kw_only=True):
    """One cell wide glyph, its ASCII stand-in, the word and a rich style."""

    glyph: str
    ascii: str
    word: str
    color: str

    def mark(self, *, plain: bool) -> str:
        return self.ascii if plain else self.glyph


WORKER_STATES: Final[dict[str, Look]] = {
    "running": Look(glyph="●", ascii=">", word="running", color=GREEN),
    "waiting": Look(glyph="~", ascii="~", word="waiting", color=SKY),
    "stopped": Look(glyph="■", ascii="!", word="stopped", color=VERMILION),
    "dead": Look(glyph="✗", ascii="x", word="dead", color=VERMILION),
    "lock": Look(glyph="◆", ascii="#", word="lock", color=VERMILION),
    "busy": Look(glyph="▲", ascii="*", word="busy", color=ORANGE),
    "loading": Look(glyph="↓", ascii="v", word="loading", color=ORANGE),
    "compiling": Look(glyph="»", ascii="%", word="compiling", color=ORANGE),
    "idle": Look(glyph="○", ascii="-", word="idle", color=DIM),
    "asleep": Look(glyph="z", ascii="z", word="asleep", color=DIM),
    "unknown": Look(glyph="?", ascii="?", word="unknown", color=PINK),
}

SERVER_STATES: Final[dict[str, Look]] = {
    "hung": Look(glyph="■", ascii="!", word="HUNG", color=f"bold {VERMILION}"),
    "crashed": Look(glyph="✗", ascii="x", word="CRASHED", color=f"bold {VERMILION}"),
    "slow": Look(glyph="▲", ascii="*", word="SLOW", color=f"bold {ORANGE}"),
    "starting": Look(glyph="↓", ascii="v", word="STARTING", color=f"bold {ORANGE}"),
    "serving": Look(glyph="●", ascii=">", word="SERVING", color=f"bold {GREEN}"),
    "idle": Look(glyph="○", ascii="-", word="IDLE", color=f"bold {SKY}"),
    "unknown": Look(glyph="?", ascii="?", word="UNKNOWN", color=f"bold {PINK}"),
}

SEVERITIES: Final[dict[str, Look]] = {
    "error": Look(glyph="✗", ascii="X", word="error", color=f"bold {VERMILION}"),
    "warning": Look(glyph="!", ascii="!", word="warning", color=f"bold {ORANGE}"),
    "info": Look(glyph="i", ascii="i", word="info", color=f"bold {SKY}"),
}

STATUSES: Final[dict[str, Look]] = {
    "healthy": Look(glyph="✓", ascii="+", word="healthy", color=f"bold {GREEN}"),
    "insufficient": Look(glyph="?", ascii="?", word="insufficient", color=f"bold {PINK}"),
}
"""Of verdicts without a code. Their titles begin with the word that a person needs."""

CONFIDENCES: Final[dict[str, str]] = {"proven": f"bold {VERMILION}", "strong": f"bold {ORANGE}", "weak": f"bold {PINK}"}


def worker_look(state: str) -> Look:
    """The look of a worker's state; a word of a later version keeps its word and the glyph of the unknown."""
    return WORKER_STATES.get(state) or Look(glyph="?", ascii="?", word=state, color=PINK)


class Lines(Struct, frozen=True, kw_only=True):
    """What trees and rules are drawn with."""

    tee: str = "├─ "
    corner: str = "└─ "
    bar: str = "│  "
    rule: str = "─"
    quote: str = "│ "
    down: str = "↓"
    up: str = "↑"
    arrow: str = "→"
    ellipsis: str = "…"
    ring_start: str = "╭▸ "
    ring_end: str = "╰─ "


UNICODE: Final = Lines()
ASCII: Final = Lines(
    tee="|- ",
    corner="`- ",
    bar="|  ",
    rule="-",
    quote="| ",
    down="v",
    up="^",
    arrow="->",
    ellipsis="...",
    ring_start="+> ",
    ring_end="+- ",
)
