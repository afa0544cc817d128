"""Never in the way: without colour, without a terminal, with a slow or dead source, after a bug."""

from __future__ import annotations

import io

import pytest

from gpudiag.render.style import SERVER_STATES, WORKER_STATES
from gpudiag.tui import entry
from gpudiag.tui.bars import status_row
from gpudiag.tui.frame import Frame, Note
from gpudiag.tui.ring import Ring
from tests.tui.driving import Driver, drive
from tests.tui.samples import recorded, state_with, widened

HUNG = "hangs/GPD307-stale-lock"


def test_every_state_can_be_told_without_colour() -> None:
    for looks in (WORKER_STATES, SERVER_STATES):
        for plain in (False, True):
            assert len({(look.mark(plain=plain), look.word) for look in looks.values()}) == len(looks)


def test_no_colour_reaches_a_terminal_that_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def colourless(driver: Driver) -> None:
        for key in ("1", "2", "3", "7"):
            await driver.press(key)
            segments = [s for strip in driver.app.screen._compositor.render_strips() for s in strip]
            filtered = list(driver.app.get_line_filters())
            for segment in segments:
                line = [segment]
                for line_filter in filtered:
                    line = line_filter.apply(line, driver.app.screen.background_colors[1])
                colours = [c for s in line if s.style is not None for c in (s.style.color, s.style.bgcolor)]
                assert all(c is None or c.is_default for c in colours)

    driver = drive(colourless, recorded(HUNG))
    assert driver.app.no_color


def test_the_screen_shown_and_the_row_chosen_can_be_told_without_colour() -> None:
    async def marked(driver: Driver) -> None:
        assert "[1 overview]" in driver.screen()
        assert driver.screen().count("▸") == 1
        await driver.press("up")
        assert "▸ 2" in driver.screen()

    drive(marked, recorded(HUNG))


def test_ascii_screens_hold_nothing_else() -> None:
    async def plain(driver: Driver) -> None:
        for key in "12345678":
            await driver.press(key)
            assert driver.screen().isascii(), driver.screen()
        await driver.press("question_mark")
        assert driver.screen().isascii()

    drive(plain, widened(8), plain=True)


TERMINALS = [(1, 1, "xterm", True), (1, 0, "xterm", False), (0, 1, "xterm", False), (1, 1, "dumb", False), (1, 1, "", False)]


@pytest.mark.parametrize(("stdin", "stdout", "term", "expected"), TERMINALS)
def test_it_opens_only_on_a_terminal(stdin: int, stdout: int, term: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)

    class Stream(io.StringIO):
        def __init__(self, terminal: int) -> None:
            super().__init__()
            self._terminal = terminal

        def isatty(self) -> bool:
            return bool(self._terminal)

    assert entry.fits(stdin=Stream(stdin), stdout=Stream(stdout)) is expected


def test_a_slow_collector_is_called_slow() -> None:
    state = state_with(*recorded(HUNG), live=True)

    def status(silent_s: float) -> str:
        return "".join(t for t, _ in status_row(state, 80, heard_at=1.0, now=1.0 + silent_s))

    assert "live" in status(1)
    assert "no look for 30 s: the collector is slow" in status(30)


def test_trouble_before_the_first_look_is_shown_with_what_to_type() -> None:
    async def gone(driver: Driver) -> None:
        assert "looking" in driver.screen()
        await driver.say(Note(text="there is no process 4242", help="gpudiag attach", trouble=True))
        assert "there is no process 4242 (gpudiag attach)" in driver.row("status")

    drive(gone, ())


def test_a_flood_of_frames_is_drawn_once() -> None:
    async def flooded(driver: Driver) -> None:
        from msgspec.structs import replace

        last = recorded(HUNG)[-1]
        for number in range(4, 60):
            driver.source.say(replace(last, number=number))
        await driver.pilot.pause()
        assert "look 59" in driver.row("status")

    drive(flooded, recorded(HUNG))


def test_the_ring_is_bounded_in_number_and_in_bytes() -> None:
    from msgspec.structs import replace

    last = recorded(HUNG)[-1]
    by_number, by_bytes = Ring(max_frames=5), Ring(max_bytes=100_000)
    for number in range(1, 50):
        for ring in (by_number, by_bytes):
            ring.add(replace(last, number=number))
    assert len(by_number) == 5
    assert by_number.numbers == (45, 49)
    assert 1 <= len(by_bytes) < 20
    oldest = by_number.get(1)
    assert oldest is not None
    assert oldest.number == 45


def test_frames_without_processes_are_no_error() -> None:
    async def empty(driver: Driver) -> None:
        for key in "12345678":
            await driver.press(key)
            assert driver.body().strip()

    drive(empty, [Frame(number=1, at=1.0)])
