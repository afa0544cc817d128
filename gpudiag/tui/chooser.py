"""Which server? The list of those that run here, looked for again every few seconds, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from msgspec import Struct
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from gpudiag import __version__
from gpudiag.errors import GpudiagError
from gpudiag.render.canvas import Canvas
from gpudiag.render.style import BOLD, DIM, PINK, PLAIN
from gpudiag.tui.grid import Cell, Column, Grid
from gpudiag.tui.lines import Lines
from gpudiag.tui.theme import THEME
from gpudiag.tui.view import Drawn

_EVERY_S: Final = 3.0
_COLUMNS: Final = (
    Column(title="pid", width=8, align="right"),
    Column(title="engine", width=8),
    Column(title="ranks", width=5, align="right"),
    Column(title="command", width=20, grow=1),
)


class Candidate(Struct, frozen=True, kw_only=True):
    """A server that can be watched: its root, and what tells it from others."""

    pid: int
    engine: str
    ranks: int
    command: str


class Found(Message):
    """What the last search found, or why it failed."""

    def __init__(self, candidates: Sequence[Candidate], why: str) -> None:
        self.candidates = candidates
        self.why = why
        super().__init__()


class Chooser(App[int]):
    """Returns the pid that was chosen; None if the person left."""

    CSS: ClassVar[str] = "Screen { layout: vertical; background: ansi_default; } Lines { width: 100%; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape,ctrl+c,ctrl+q", "leave", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("enter", "choose", show=False),
        Binding("r,f5", "search", show=False),
    ]

    def __init__(self, search: Callable[[], Sequence[Candidate]], *, plain: bool = False) -> None:
        super().__init__(ansi_color=True)
        self._search = search
        self._plain = plain
        self._candidates: Sequence[Candidate] | None = None
        self._why = ""
        self._row = 0

    def compose(self) -> ComposeResult:
        yield Lines(id="body", plain=self._plain)
        yield Lines(id="keys", height=1)

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        self.action_search()
        self.set_interval(_EVERY_S, self.action_search)
        self.call_after_refresh(self._draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def action_search(self) -> None:
        self.run_worker(self._look, thread=True, exclusive=True, group="search")

    def _look(self) -> None:
        try:
            self.post_message(Found(self._search(), ""))
        except GpudiagError as error:
            self.post_message(Found((), error.message))

    def on_found(self, message: Found) -> None:
        pid = self._chosen
        self._candidates, self._why = message.candidates, message.why
        self._row = next((n for n, c in enumerate(self._candidates) if c.pid == pid), 0)
        self._draw()

    @property
    def _chosen(self) -> int | None:
        candidates = self._candidates or ()
        return candidates[self._row].pid if self._row < len(candidates) else None

    def _draw(self) -> None:
        width = self.size.width
        canvas = Canvas(width, color=True, plain=self._plain)
        canvas.row((f"gpudiag {__version__}", DIM), ("  which server?", BOLD))
        canvas.rule()
        keys = {}
        if self._candidates:
            grid = Grid(_COLUMNS, canvas)
            grid.head()
        for candidate in self._candidates or ():
            keys[len(canvas.rows)] = str(candidate.pid)
            told = (str(candidate.pid), candidate.engine, str(candidate.ranks), candidate.command)
            grid.row([Cell(text=text) for text in told])
        if self._candidates is None:
            canvas.row(("  looking for servers ...", DIM))
        elif not self._candidates:
            canvas.paragraph([("  ", PLAIN)], self._why or "no SGLang, vLLM or torch.distributed server runs here", PINK)
            canvas.blank()
            for command, what in _OTHERWISE:
                canvas.row((f"  {command:<28}", PLAIN), (canvas.fit(what, max(8, width - 30)), DIM))
        row = next((r for n, r in enumerate(keys) if n == self._row), None)
        self.query_one("#body", Lines).show(Drawn(rows=canvas.rows, keys=keys), cursor=row)
        self.query_one("#keys", Lines).show(Drawn(rows=[[("  enter watches it  r looks again  q quit", DIM)]]))

    def action_move(self, by: int) -> None:
        count = len(self._candidates or ())
        self._row = max(0, min(count - 1, self._row + by))
        self._draw()

    def action_choose(self) -> None:
        if self._chosen is not None:
            self.exit(self._chosen)

    def action_leave(self) -> None:
        self.exit(None)


_OTHERWISE: Final = (
    ("gpudiag attach PID", "any process, also in a container"),
    ("gpudiag explain FILE", "what is left of a server: logs, recordings, dumps"),
    ("gpudiag doctor", "is this machine fit to serve?"),
    ("gpudiag demo", "a server that really hangs, and its diagnosis"),
)
