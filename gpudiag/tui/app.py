"""The terminal program: keys in, rows out. What is shown is decided in `state` and the screens."""

from __future__ import annotations

import time
from typing import ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from gpudiag.tui.actions import ACTIONS, offered
from gpudiag.tui.bars import rule_row, screens_row, status_row, title_row
from gpudiag.tui.deeds import Deeds
from gpudiag.tui.dialogs import Palette
from gpudiag.tui.frame import Frame, Note
from gpudiag.tui.lines import Lines
from gpudiag.tui.sources import Source
from gpudiag.tui.state import State
from gpudiag.tui.theme import THEME
from gpudiag.tui.view import Drawn

_TICK_S: Final = 1.0
_SAID_S: Final = 6.0


class Delivered(Message):
    """Something of the source waits to be shown. A later one replaces it: only the newest frame is worth drawing."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Delivered)


class GpudiagApp(Deeds, App[int]):
    """One source, one state, five stripes of rows."""

    CSS: ClassVar[str] = """
    Screen { layout: vertical; background: ansi_default; }
    Lines { width: 100%; }
    """
    ENABLE_COMMAND_PALETTE = False
    TITLE = "gpudiag"
    BINDINGS: ClassVar[list[BindingType]] = [
        # Tab moves the focus unless an application is first to take it.
        Binding(
            ",".join(action.keys),
            f"deed('{action.id}')",
            action.title,
            show=False,
            priority=action.id in ("next_rank", "previous_rank"),
        )
        for action in ACTIONS
    ]

    def __init__(self, source: Source, *, plain: bool = False, allow_signals: bool = False, interval_s: float = 1.0) -> None:
        super().__init__(ansi_color=True)
        self.source = source
        self.state = State(live=source.live, plain=plain, interval_s=interval_s)
        self.allow_signals = allow_signals
        self.actions = offered(signals=allow_signals)
        self._heard_at = time.monotonic()
        self._said: tuple[str, float] = ("", 0.0)

    def compose(self) -> ComposeResult:
        yield Lines(id="title", height=1)
        yield Lines(id="rule", height=1)
        yield Lines(id="body", plain=self.state.plain)
        yield Lines(id="status", height=1)
        yield Lines(id="screens", height=1)

    def on_mount(self) -> None:
        self.register_theme(THEME)
        self.theme = THEME.name
        self.source.start(self._deliver)
        self.set_interval(_TICK_S, self._tick)
        self.redraw()

    def on_unmount(self) -> None:
        self.source.stop()

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    def _deliver(self, message: Frame | Note, data: bytes) -> None:
        """Called from the source's thread."""
        self.state.inbox.append((message, data))
        self.post_message(Delivered())

    def on_delivered(self) -> None:
        while self.state.inbox:
            self.state.take(*self.state.inbox.popleft())
            self._heard_at = time.monotonic()
        if self.source.error is not None:
            self.exit()
        self.redraw()

    def _tick(self) -> None:
        """The age of what is shown grows by itself."""
        self.show_status()

    def restart(self) -> None:
        """Start the source again after it ended."""
        self.source.start(self._deliver)

    def say(self, text: str) -> None:
        """A passing message in the status row."""
        self._said = (text, time.monotonic())
        self.show_status()

    def redraw(self) -> None:
        """Draw what differs. While a dialog is open the screen below it stands still."""
        if not self.is_running or len(self.screen_stack) > 1:
            return
        width, body = self.size.width, self.query_one("#body", Lines)
        self.query_one("#title", Lines).show(Drawn(rows=[list(title_row(self.state, width))]))
        self.query_one("#rule", Lines).show(Drawn(rows=[list(rule_row(self.state, width))]))
        drawn = self.state.draw(width, body.size.height) or Drawn(rows=[[("  looking at the server ...", "dim")]])
        body.show(drawn, top=self.state.place.top, cursor=self.cursor_in(drawn))
        self.query_one("#screens", Lines).show(Drawn(rows=[list(screens_row(self.state, width))]))
        self.show_status()

    def show_status(self) -> None:
        if not self.is_running or len(self.screen_stack) > 1:
            return
        text, at = self._said
        said = text if time.monotonic() - at < _SAID_S else ""
        row = status_row(self.state, self.size.width, heard_at=self._heard_at, said=said)
        self.query_one("#status", Lines).show(Drawn(rows=[list(row)]))

    def cursor_in(self, drawn: Drawn) -> int | None:
        """The row of the chosen key; if there is none, or it has gone, that which the screen starts with."""
        rows = {key: row for row, key in reversed(drawn.keys.items())}
        wanted = next((key for key in (self.state.place.key, drawn.start) if key in rows), None)
        return rows[wanted] if wanted is not None else min(drawn.keys, default=None)

    def action_deed(self, name: str) -> None:
        getattr(self, f"do_{name}")()
        self.redraw()

    def open_palette(self) -> None:
        self.push_screen(Palette(self.actions), self._picked)

    def _picked(self, name: str | None) -> None:
        if name is not None:
            self.action_deed(name)
        self.redraw()
