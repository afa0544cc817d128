"""Drive the application without a terminal, and read what stands on its screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from gpudiag.errors import GpudiagError
from gpudiag.tui.app import GpudiagApp
from gpudiag.tui.frame import Frame, Note, encode
from gpudiag.tui.lines import Lines
from gpudiag.tui.sources import Deliver


class Scripted:
    """A source that says what a test tells it to say, and remembers what it was asked."""

    live = True
    error: GpudiagError | None = None

    def __init__(self, *frames: Frame) -> None:
        self._first = frames
        self._deliver: Deliver | None = None
        self.asked: list[tuple[str, float]] = []
        self.starts = 0
        self.stopped = False

    def start(self, deliver: Deliver) -> None:
        self.starts += 1
        self._deliver = deliver
        for frame in self._first:
            deliver(frame, encode(frame))

    def stop(self) -> None:
        self.stopped = True

    def ask(self, what: str, interval_s: float = 1.0) -> None:
        self.asked.append((what, interval_s))

    def say(self, message: Frame | Note) -> None:
        assert self._deliver is not None
        self._deliver(message, encode(message))


class Driver:
    """Keys in, text out."""

    def __init__(self, app: GpudiagApp, pilot: Pilot[int], source: Scripted) -> None:
        self.app = app
        self.pilot = pilot
        self.source = source

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def say(self, message: Frame | Note) -> None:
        self.source.say(message)
        await self.pilot.pause()

    def row(self, which: str) -> str:
        """The title, status or screens row."""
        return "".join(text for text, _ in self.app.query_one(f"#{which}", Lines).drawn.rows[0]).rstrip()

    def body(self) -> str:
        """Everything of the screen, also what is scrolled away."""
        return self.app.query_one("#body", Lines).drawn.text()

    def screen(self) -> str:
        """What a terminal shows now, dialogs included."""
        height = self.app.size.height
        strips = [self.app.screen._compositor.render_strips()[y] for y in range(height)]
        return "\n".join(strip.text.rstrip() for strip in strips)


@asynccontextmanager
async def driven(
    frames: Sequence[Frame], *, size: tuple[int, int] = (80, 24), plain: bool = False, allow_signals: bool = False
) -> AsyncIterator[Driver]:
    source = Scripted(*frames)
    app = GpudiagApp(source, plain=plain, allow_signals=allow_signals)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Driver(app, pilot, source)


def drive(
    test: Callable[[Driver], Coroutine[Any, Any, None]],
    frames: Sequence[Frame],
    *,
    size: tuple[int, int] = (80, 24),
    plain: bool = False,
    allow_signals: bool = False,
) -> Driver:
    """Run a test against the application, and return what is left of it."""

    async def run() -> Driver:
        async with driven(frames, size=size, plain=plain, allow_signals=allow_signals) as driver:
            await test(driver)
            return driver

    return asyncio.run(run())
