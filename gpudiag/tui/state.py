"""What the person at the terminal looks at, and how each action changes it. Knows nothing of terminals."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from gpudiag.model.report import Report
from gpudiag.render.plain import ascii_only, clean
from gpudiag.tui.actions import SCREENS, ScreenName
from gpudiag.tui.frame import Frame, Note
from gpudiag.tui.orders import MIN_INTERVAL_S
from gpudiag.tui.ring import Ring
from gpudiag.tui.screens import SORTS, draw_screen
from gpudiag.tui.view import Drawn, Filter, View

MAX_INTERVAL_S: Final = 60.0


@dataclass
class Place:
    """Where one screen is scrolled to, and the key of the row that is chosen."""

    top: int = 0
    key: str | None = None


@dataclass
class State:
    """Everything that a key can change. `shown` is the number of the frame on the screen; None: always the newest."""

    ring: Ring = field(default_factory=Ring)
    live: bool = True
    plain: bool = False
    screen: ScreenName = "overview"
    shown: int | None = None
    note: Note | None = None
    """What the source said last: what it does, or why no more will come."""
    server: int = 0
    pid: int | None = None
    filter: Filter = field(default_factory=Filter)
    sorts: dict[str, str] = field(default_factory=dict)
    reversed: set[str] = field(default_factory=set)
    grouped: bool | None = None
    finding: int = 0
    opened: set[str] = field(default_factory=set)
    interval_s: float = 1.0
    places: dict[str, Place] = field(default_factory=dict)
    inbox: deque[tuple[Frame | Note, bytes]] = field(default_factory=deque)
    """What the source's thread has left here, to be taken by the thread that draws."""

    @property
    def frame(self) -> Frame | None:
        return self.ring.newest if self.shown is None else self.ring.get(self.shown)

    @property
    def report(self) -> Report | None:
        frame = self.frame
        if frame is None or not frame.reports:
            return None
        return frame.reports[min(self.server, len(frame.reports) - 1)]

    @property
    def place(self) -> Place:
        return self.places.setdefault(self.screen, Place())

    def draw(self, width: int, height: int) -> Drawn | None:
        """The screen as rows; None while there is no frame."""
        view = self.view(width, height)
        if view is None:
            return None
        drawn = draw_screen(self.screen, view)
        return replace(drawn, rows=[[(self._harmless(text), style) for text, style in row] for row in drawn.rows])

    def _harmless(self, text: str) -> str:
        """Screens clean what comes from a target; this is for what one of them may have forgotten."""
        if self.plain and not text.isascii():
            text = ascii_only(text)
        return text if text.isprintable() else clean(text)

    def view(self, width: int, height: int) -> View | None:
        frame = self.frame
        if frame is None:
            return None
        return View(
            frame=frame,
            width=width,
            height=height,
            plain=self.plain,
            moments=self.ring.moments(frame.number, width),
            server=self.server,
            pid=self.pid,
            filter=self.filter,
            sort=self.sorts.get(self.screen),
            reverse=self.screen in self.reversed,
            grouped=self.grouped,
            finding=self.finding,
            opened=frozenset(self.opened),
        )

    def take(self, message: Frame | Note, data: bytes) -> None:
        """A message of the source. A frame that comes again starts the ring's numbers where they were."""
        if isinstance(message, Note):
            self.note = message
            return
        self.note = None
        first = self.ring.newest is None
        self.ring.add(message, data)
        if message.native:
            # The next look is without C frames again, and the person wants to read them.
            self.shown = message.number
        if first and message.run is not None:
            self.screen = "launch"

    # Time

    def pause(self) -> None:
        """Hold the frame that is shown, or go on with the newest."""
        newest = self.ring.newest
        self.shown = None if self.shown is not None else newest.number if newest else None

    def step(self, by: int) -> None:
        newest = self.ring.newest
        if newest is None:
            return
        here = self.shown if self.shown is not None else newest.number
        self.shown = self.ring.step(here, by)

    def oldest(self) -> None:
        numbers = self.ring.numbers
        if numbers is not None:
            self.shown = numbers[0]

    def now(self) -> None:
        self.shown = None

    def faster(self) -> None:
        self.interval_s = max(MIN_INTERVAL_S, self.interval_s / 2)

    def slower(self) -> None:
        self.interval_s = min(MAX_INTERVAL_S, self.interval_s * 2)

    # Screens and rows

    def show(self, screen: ScreenName) -> None:
        self.screen = screen

    def back(self) -> None:
        """One step towards the start: first the filter goes, then the past, then the screen."""
        if self.filter.text:
            self.filter = Filter()
        elif self.shown is not None and self.live:
            self.shown = None
        else:
            self.screen = "overview"

    def open(self, key: str) -> None:
        """A row was chosen: a rank on the overview and among the stacks opens its details, elsewhere details open in place."""
        if self.screen in ("overview", "stacks", "communicators") and key.isdigit():
            self.pid = int(key)
            self.places["rank"] = Place()
            self.screen = "rank"
        elif self.screen == "findings" and key.isdigit():
            self.finding = int(key)
        else:
            self.opened ^= {key}

    def next_rank(self, by: int) -> None:
        view = self.view(80, 24)
        workers = view.workers if view else []
        if view is None or view.chosen is None:
            return
        index = workers.index(view.chosen)
        self.pid = workers[(index + by) % len(workers)].pid
        self.places["rank"] = Place()

    def next_finding(self, by: int) -> None:
        """From another screen the first step shows the finding that is current."""
        count = len(self.report.findings) if self.report else 0
        if self.screen == "findings" and count:
            self.finding = (self.finding + by) % count
        self.places["findings"] = Place()
        self.screen = "findings"

    def next_server(self) -> None:
        frame = self.frame
        if frame is not None and frame.reports:
            self.server = (self.server + 1) % len(frame.reports)
            self.pid = None

    def sort(self) -> None:
        order = SORTS.get(self.screen)
        if order:
            here = order.index(self.sorts.get(self.screen, order[0]))
            self.sorts[self.screen] = order[(here + 1) % len(order)]

    def reverse(self) -> None:
        if self.screen in SORTS:
            self.reversed ^= {self.screen}

    def group(self, *, grouped_now: bool) -> None:
        self.grouped = not grouped_now

    def environment(self) -> None:
        self.opened ^= {"environment"}
        self.screen = "rank"


def screen_number(screen: ScreenName) -> int:
    return next(n for n, (name, _) in enumerate(SCREENS, 1) if name == screen)
