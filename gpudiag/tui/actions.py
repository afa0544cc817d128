"""Everything that can be done in the terminal interface: keys, footer, help, palette and the README come from here."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

ScreenName = Literal["overview", "rank", "stacks", "communicators", "gpus", "log", "findings", "launch"]

SCREENS: Final[tuple[tuple[ScreenName, str], ...]] = (
    ("overview", "the verdict, the culprit, and what every rank does"),
    ("rank", "one process: threads, stacks, locks, files, sockets, environment"),
    ("stacks", "who stands where: alike stacks together, the odd one first"),
    ("communicators", "NCCL communicators: collectives launched by each rank, who is behind"),
    ("gpus", "power, activity, clocks, links and errors, over time"),
    ("log", "what the server wrote, merged, the root cause marked"),
    ("findings", "each finding with its evidence and its runbook page"),
    ("launch", "a server that comes up: phases, time left, throughput, acceptance"),
)
"""Name and purpose, in the order of the number keys."""


class Action(Struct, frozen=True, kw_only=True):
    """One thing that a person can do. `keys` are Textual's names, `shown` what a person calls the keys."""

    id: str
    keys: tuple[str, ...]
    shown: str
    title: str
    help: str
    group: str = "look"
    on: tuple[ScreenName, ...] = ()
    """Where it does something; everywhere if empty."""
    signals: bool = False
    """Only offered with --allow-signals."""


_LOOK: Final = (
    Action(id="quit", keys=("q", "ctrl+c", "ctrl+q"), shown="q", title="quit", help="leave at once; the server is not touched"),
    Action(id="help", keys=("question_mark", "h", "f1"), shown="?", title="help", help="all keys"),
    Action(id="back", keys=("escape",), shown="esc", title="back", help="clear the filter, return to now, or to the overview"),
    Action(
        id="palette", keys=("ctrl+p", "colon"), shown="ctrl+p", title="commands", help="find an action by name; `:` does the same"
    ),
)

_MOVE: Final = (
    Action(id="up", keys=("up", "k"), shown="up k", title="up", help="the row above", group="move"),
    Action(id="down", keys=("down", "j"), shown="down j", title="down", help="the row below", group="move"),
    Action(id="page_up", keys=("pageup", "ctrl+b"), shown="pgup", title="page up", help="a page up", group="move"),
    Action(id="page_down", keys=("pagedown", "ctrl+f"), shown="pgdn", title="page down", help="a page down", group="move"),
    Action(id="top", keys=("g",), shown="g", title="top", help="the first row", group="move"),
    Action(id="bottom", keys=("G",), shown="G", title="bottom", help="the last row", group="move"),
    Action(
        id="open",
        keys=("enter",),
        shown="enter",
        title="open",
        help="details of the row: the rank, or the frames of the thread",
        group="move",
    ),
    Action(
        id="next_rank",
        keys=("tab", "right_square_bracket"),
        shown="tab",
        title="next rank",
        help="the next process",
        group="move",
    ),
    Action(
        id="previous_rank",
        keys=("shift+tab", "left_square_bracket"),
        shown="shift+tab",
        title="previous rank",
        help="the process before",
        group="move",
    ),
    Action(
        id="next_finding", keys=("n",), shown="n", title="next finding", help="the next finding, with its runbook", group="move"
    ),
    Action(id="previous_finding", keys=("N",), shown="N", title="previous finding", help="the finding before", group="move"),
    Action(
        id="next_server",
        keys=("o",),
        shown="o",
        title="other server",
        help="the next server of a recording that holds several",
        group="move",
    ),
)

_ORDER: Final = (
    Action(
        id="filter",
        keys=("slash",),
        shown="/",
        title="filter",
        help="only rows that match a regular expression; `!` in front: only those that do not",
        group="order",
    ),
    Action(id="sort", keys=("s",), shown="s", title="sort", help="by the next column", group="order", on=("overview", "gpus")),
    Action(
        id="reverse", keys=("S",), shown="S", title="reverse", help="the other way round", group="order", on=("overview", "gpus")
    ),
    Action(
        id="group",
        keys=("t",),
        shown="t",
        title="group",
        help="ranks that do the same in one row, or each alone",
        group="order",
        on=("overview",),
    ),
)

_TIME: Final = (
    Action(id="pause", keys=("space",), shown="space", title="pause", help="hold the view; looking goes on", group="time"),
    Action(id="earlier", keys=("left",), shown="left", title="earlier", help="one look back in time", group="time"),
    Action(id="later", keys=("right",), shown="right", title="later", help="one look forward", group="time"),
    Action(id="much_earlier", keys=("shift+left",), shown="shift+left", title="10 earlier", help="ten looks back", group="time"),
    Action(id="much_later", keys=("shift+right",), shown="shift+right", title="10 later", help="ten looks forward", group="time"),
    Action(id="oldest", keys=("home",), shown="home", title="oldest", help="the oldest look that is kept", group="time"),
    Action(id="now", keys=("end",), shown="end", title="now", help="the newest look, and go on", group="time"),
    Action(
        id="refresh",
        keys=("r", "f5"),
        shown="r",
        title="look now",
        help="look at once; starts a collector again that ended",
        group="time",
    ),
    Action(
        id="faster",
        keys=("plus", "equals_sign"),
        shown="+",
        title="faster",
        help="half the time between looks, 0.25 s at least",
        group="time",
    ),
    Action(
        id="slower", keys=("minus",), shown="-", title="slower", help="twice the time between looks, 60 s at most", group="time"
    ),
)

_KEEP: Final = (
    Action(
        id="copy",
        keys=("y",),
        shown="y",
        title="copy report",
        help="the report as Markdown to the clipboard, redacted",
        group="keep",
    ),
    Action(
        id="write", keys=("w",), shown="w", title="write report", help="the report as Markdown to a file, redacted", group="keep"
    ),
    Action(
        id="record",
        keys=("ctrl+s",),
        shown="ctrl+s",
        title="save recording",
        help="what was seen, to a file for `gpudiag explain`, redacted",
        group="keep",
    ),
    Action(
        id="environment",
        keys=("e",),
        shown="e",
        title="environment",
        help="the variables of the process, redacted",
        group="keep",
        on=("rank",),
    ),
    Action(
        id="native",
        keys=("c",),
        shown="c",
        title="C frames",
        help="one look with C and C++ frames; asks first, since it stops each process for the moment",
        group="keep",
    ),
    Action(
        id="signal",
        keys=("K",),
        shown="K",
        title="signal",
        help="end the process shown; asks first, with pid and command line",
        group="keep",
        signals=True,
    ),
)

ACTIONS: Final[tuple[Action, ...]] = (
    *_LOOK,
    *(
        Action(
            id=f"screen_{name}",
            keys=(str(number), "l") if name == "log" else (str(number),),
            shown=f"{number} l" if name == "log" else str(number),
            title=name,
            help=purpose,
            group="screens",
        )
        for number, (name, purpose) in enumerate(SCREENS, 1)
    ),
    *_MOVE,
    *_ORDER,
    *_TIME,
    *_KEEP,
)

GROUPS: Final[dict[str, str]] = {
    "screens": "Screens",
    "move": "Move",
    "time": "Time",
    "order": "Order",
    "keep": "Keep and look closer",
    "look": "Everywhere",
}


def offered(*, signals: bool) -> tuple[Action, ...]:
    """The actions of this run: nothing that signals a process unless that was allowed."""
    return tuple(a for a in ACTIONS if signals or not a.signals)


def table() -> str:
    """The keys as a Markdown table, for the README."""
    lines = ["| key | what it does |", "|---|---|"]
    for group in GROUPS:
        for action in (a for a in ACTIONS if a.group == group):
            only = " (with `--allow-signals`)" if action.signals else f" ({', '.join(action.on)})" if action.on else ""
            lines.append(f"| `{action.shown}` | {action.title}: {action.help}{only} |")
    return "\n".join(lines) + "\n"
