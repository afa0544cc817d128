"""What each action does: one method `do_ID` for each entry of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudiag.tui import signals
from gpudiag.tui.actions import SCREENS, Action, ScreenName
from gpudiag.tui.dialogs import Ask, Confirm, Help
from gpudiag.tui.files import free_name
from gpudiag.tui.lines import Lines
from gpudiag.tui.view import Drawn, Filter

if TYPE_CHECKING:
    from textual.app import App

    from gpudiag.tui.signals import SignalTarget
    from gpudiag.tui.sources import Source
    from gpudiag.tui.state import State

    Base = App[int]
else:
    Base = object


class Deeds(Base):
    """Mixed into the application. Each method changes the state; the application draws afterwards.

    What raises NotImplementedError is the application's: it has the rows, the status line and the source's thread.
    """

    state: State
    source: Source
    actions: tuple[Action, ...]
    allow_signals: bool

    def say(self, text: str) -> None:
        """Write into the status line."""
        raise NotImplementedError

    def open_palette(self) -> None:
        """Offer every action by name."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw the state as it is now."""
        raise NotImplementedError

    def cursor_in(self, drawn: Drawn) -> int | None:
        """The row that is chosen, among rows that were drawn."""
        raise NotImplementedError

    def restart(self) -> None:
        """Begin with the source anew, after trouble."""
        raise NotImplementedError

    # Everywhere

    def do_quit(self) -> None:
        self.source.stop()
        self.exit(0)

    def do_help(self) -> None:
        self.push_screen(Help(self.actions, plain=self.state.plain), self._redraw)

    def do_palette(self) -> None:
        self.open_palette()

    def do_back(self) -> None:
        self.state.back()

    # Rows

    @property
    def _body(self) -> Lines:
        return self.query_one("#body", Lines)

    def move(self, by: int) -> None:
        """To the next row that can be chosen; where none can, the screen scrolls."""
        drawn, place = self._body.drawn, self.state.place
        rows = sorted(drawn.keys)
        here = self.cursor_in(drawn)
        if here is None:
            self.scroll_by(by)
            return
        index = rows.index(here) + by
        if 0 <= index < len(rows):
            place.key = drawn.keys[rows[index]]
            self._reveal(rows[index])
        else:
            self.scroll_by(by)

    def scroll_by(self, by: int) -> None:
        body = self._body
        self.state.place.top = max(0, min(body.last_top, body.top + by))

    def _reveal(self, row: int) -> None:
        body, place = self._body, self.state.place
        height = max(1, body.size.height)
        if row < body.top:
            place.top = row
        elif row >= body.top + height:
            place.top = row - height + 1

    def do_up(self) -> None:
        self.move(-1)

    def do_down(self) -> None:
        self.move(1)

    def do_page_up(self) -> None:
        self.scroll_by(-max(1, self._body.size.height - 2))

    def do_page_down(self) -> None:
        self.scroll_by(max(1, self._body.size.height - 2))

    def do_top(self) -> None:
        self.state.place.top = 0
        self.state.place.key = None

    def do_bottom(self) -> None:
        drawn = self._body.drawn
        self.state.place.top = self._body.last_top
        if drawn.keys:
            self.state.place.key = drawn.keys[max(drawn.keys)]

    def do_open(self) -> None:
        drawn = self._body.drawn
        row = self.cursor_in(drawn)
        if row is not None:
            self.state.open(drawn.keys[row])

    def do_next_rank(self) -> None:
        self.state.next_rank(1)

    def do_previous_rank(self) -> None:
        self.state.next_rank(-1)

    def do_next_finding(self) -> None:
        self.state.next_finding(1)

    def do_previous_finding(self) -> None:
        self.state.next_finding(-1)

    def do_next_server(self) -> None:
        self.state.next_server()

    # Order

    def do_filter(self) -> None:
        self.push_screen(Ask("filter /", self.state.filter.text), self._filter)

    def _filter(self, text: str | None) -> None:
        if text is not None:
            self.state.filter = Filter(text=text)
            self.state.place.top = 0
        self.redraw()

    def do_sort(self) -> None:
        self.state.sort()

    def do_reverse(self) -> None:
        self.state.reverse()

    def do_group(self) -> None:
        workers = len(self.state.report.target.workers) if self.state.report and self.state.report.target else 0
        grouped_now = self.state.grouped if self.state.grouped is not None else len(self._body.drawn.keys) < workers
        self.state.group(grouped_now=grouped_now)

    # Time

    def do_pause(self) -> None:
        self.state.pause()

    def do_earlier(self) -> None:
        self.state.step(-1)

    def do_later(self) -> None:
        self.state.step(1)

    def do_much_earlier(self) -> None:
        self.state.step(-10)

    def do_much_later(self) -> None:
        self.state.step(10)

    def do_oldest(self) -> None:
        self.state.oldest()

    def do_now(self) -> None:
        self.state.now()

    def do_refresh(self) -> None:
        if self.state.note is not None and self.state.note.trouble:
            self.state.note = None
            self.restart()
        else:
            self.source.ask("look")

    def do_faster(self) -> None:
        self.state.faster()
        self.source.ask("interval", self.state.interval_s)

    def do_slower(self) -> None:
        self.state.slower()
        self.source.ask("interval", self.state.interval_s)

    # Keep and look closer

    def do_copy(self) -> None:
        if self.state.frame is not None:
            from gpudiag.tui import export

            text, taken = export.report(self.state)
            self.copy_to_clipboard(text)
            self.say(f"the report is in the clipboard, {len(text.encode()) / 1000:.1f} kB; taken out: {taken}")

    def do_write(self) -> None:
        if self.state.frame is not None:
            self.push_screen(Ask("write the report to ", free_name("gpudiag-report", ".md")), self._write)

    def _write(self, name: str | None) -> None:
        if name:
            from gpudiag.tui import export

            self.say(export.write_report(self.state, name))
        self.redraw()

    def do_record(self) -> None:
        if self.state.frame is not None:
            self.push_screen(Ask("save the recording to ", free_name("hang", ".gpudiag")), self._record)

    def _record(self, name: str | None) -> None:
        if name:
            from gpudiag.tui import export

            self.say(export.write_recording(self.state, name))
        self.redraw()

    def do_environment(self) -> None:
        self.state.environment()

    def do_native(self) -> None:
        if not self.state.live:
            self.say("a recording holds what was read then; C frames: gpudiag attach PID --native --record FILE")
            return
        count = len(self.state.report.target.workers) if self.state.report and self.state.report.target else 0
        question = (
            f"Read C and C++ frames once?\n\nEach of {count} processes is stopped by ptrace while its stack is read: "
            "milliseconds, with thousands of threads seconds. The status row then says for how long."
        )
        self.push_screen(Confirm(question, plain=self.state.plain), self._native)

    def _native(self, yes: bool | None) -> None:
        if yes:
            self.source.ask("native")
            self.say("looking with C frames ...")
        self.redraw()

    def do_signal(self) -> None:
        view = self.state.view(80, 24)
        worker = view.chosen if view else None
        if view is None or worker is None or not self.allow_signals:
            return
        target = signals.target_of(view, worker.pid)
        if target is None:
            self.say("this process is not there any more")
            return
        question = f"Send SIGTERM to this process?\n\npid {target.pid}\n{target.command}"
        self.push_screen(Confirm(question, plain=self.state.plain), lambda yes: self._signal(target, yes=bool(yes)))

    def _signal(self, target: SignalTarget, *, yes: bool) -> None:
        if yes:
            self.say(signals.terminate(target))
        self.redraw()

    def _redraw(self, _: object = None) -> None:
        self.redraw()


def _screen_action(name: ScreenName) -> object:
    def show(self: Deeds) -> None:
        self.state.show(name)

    return show


for _name, _ in SCREENS:
    setattr(Deeds, f"do_screen_{_name}", _screen_action(_name))
