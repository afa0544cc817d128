"""What every screen shows. The pictures are in snapshots/; GPUDIAG_UPDATE_SNAPSHOTS=1 draws them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from gpudiag.model.log import LogFacts, LogSource, ServerLog
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.run import Phase
from gpudiag.model.stack import PyStack
from gpudiag.render.canvas import cells
from gpudiag.tui.actions import SCREENS, ScreenName
from gpudiag.tui.bars import screens_row, status_row, title_row
from gpudiag.tui.frame import Frame, pack, unpack
from gpudiag.tui.state import State
from gpudiag.tui.view import Filter
from tests.tui.samples import crashed, launched, recorded, state_with, widened

SNAPSHOTS = Path(__file__).with_name("snapshots")
ROWS = 60
"""Of a screen that are kept in a snapshot."""

DEMO = ("301-rank-missing", "304-rank-dead", "305-rank-stopped", "306-lock-cycle", "307-stale-lock", "309-queue-to-nobody")
SAMPLES: dict[str, Callable[[], tuple[Frame, ...]]] = {
    "healthy": lambda: recorded("gpu/converted/sglang_busy"),
    **{f"demo-{name[4:]}": (lambda name=name: recorded(f"hangs/GPD{name}")) for name in (*DEMO, "314-slow-compile", "318-idle")},  # type: ignore[misc]
    "hang-8": lambda: widened(8),
    "hang-64": lambda: widened(64),
    "crash": crashed,
}
LAUNCHES: dict[str, Callable[[], Frame]] = {
    "planned": lambda: launched(None),
    **{phase: (lambda phase=phase: launched(phase)) for phase in get_args(Phase)},  # type: ignore[misc]
    "serving": lambda: launched("ready", "serving", sentence="serving: 3 requests, 413 tokens/s"),
    "stalled": lambda: launched("weight-load", "stalled", sentence="loading weights: nothing read for 30 s"),
    "crashed": lambda: launched("compile", "crashed", sentence="ended with status 1 while compiling"),
}


def pages(state: State, width: int, height: int, *screens: ScreenName) -> str:
    """Each screen under a line with its name, as tall as it is or as many rows as are kept."""
    parts = []
    for name in screens:
        state.show(name)
        drawn = state.draw(width, height)
        assert drawn is not None
        rows = drawn.text().splitlines()
        if name == "findings":
            rows = without_page(rows)
        more = [f"... {len(rows) - ROWS} more rows"] if len(rows) > ROWS else []
        parts.append("\n".join([f"==== {name}", *rows[:ROWS], *more]))
    return "\n".join(parts) + "\n"


def without_page(rows: list[str]) -> list[str]:
    """Findings without the runbook page below them, whose words are not the screen's business."""
    rules = [n for n, row in enumerate(rows) if row and not row.strip("-\u2500")]
    return [*rows[: rules[-1] + 1], "... the runbook page"] if len(rules) > 1 else rows


def all_pages(frames: tuple[Frame, ...], width: int = 80, *, plain: bool = False) -> str:
    return pages(state_with(*frames, plain=plain), width, 20, *(name for name, _ in SCREENS if name != "launch"))


DRAWN: dict[str, Callable[[], str]] = {
    **{f"{name}.txt": (lambda make=make: all_pages(make())) for name, make in SAMPLES.items()},  # type: ignore[misc]
    **{f"{name}.wide.txt": (lambda name=name: all_pages(SAMPLES[name](), 160)) for name in ("hang-8", "demo-stale-lock")},  # type: ignore[misc]
    "demo-lock-cycle.ascii.txt": lambda: all_pages(SAMPLES["demo-lock-cycle"](), plain=True),
    "launch.txt": lambda: "".join(
        f"######## {name}\n{pages(state_with(make()), 80, 20, 'launch')}" for name, make in LAUNCHES.items()
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_it_looks_as_it_did(name: str) -> None:
    path = SNAPSHOTS / name
    drawn = DRAWN[name]()
    if os.environ.get("GPUDIAG_UPDATE_SNAPSHOTS"):
        path.write_text(drawn, encoding="utf-8")
    assert drawn == path.read_text(encoding="utf-8")


def test_no_picture_is_left_over() -> None:
    assert {p.name for p in SNAPSHOTS.iterdir()} == set(DRAWN)


@pytest.mark.parametrize("width", [60, 80, 121, 200])
@pytest.mark.parametrize("name", SAMPLES)
def test_rows_fit(name: str, width: int) -> None:
    state = state_with(*SAMPLES[name]())
    for screen, _ in SCREENS:
        state.show(screen)
        drawn = state.draw(width, 20)
        assert drawn is not None
        for row in drawn.text().splitlines():
            # A command is not broken, so that it can be copied.
            assert cells(row) <= width or "`" in row or "/" in row, (screen, row)


@pytest.mark.parametrize("name", [n for n in SAMPLES if n.startswith(("demo-", "hang-"))])
def test_the_first_80x24_screen_holds_the_verdict_the_culprit_and_the_lanes(name: str) -> None:
    state = state_with(*SAMPLES[name]())
    report = state.report
    assert report is not None
    drawn = state.draw(80, 20)
    assert drawn is not None
    shown = "\n".join(drawn.text().splitlines()[:20])
    assert (report.verdict.code or "") in shown
    heads = [n for n, row in enumerate(shown.splitlines()) if re.match("  rank  .* state", row)]
    assert len(heads) == 1
    assert all(row < 20 for row in drawn.keys), "a lane does not fit"
    for culprit in report.verdict.culprits[:1]:
        assert culprit.function is None or culprit.function in shown
    if report.verdict.severity == "error":
        assert drawn.start is not None
        assert drawn.start in drawn.keys.values()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_ascii_is_ascii(name: str, plain: bool) -> None:
    text = all_pages(SAMPLES[name](), plain=plain)
    body = text.split("==== findings")[0]
    assert body.isascii() is plain


def test_alike_ranks_share_a_row_only_where_there_is_no_room() -> None:
    state = state_with(*widened(8))
    few, many = state.draw(80, 12), state.draw(80, 40)
    assert few is not None
    assert many is not None
    assert len(few.keys) == 3
    assert len(many.keys) == 9


def test_the_filter_leaves_what_matches_and_with_an_exclamation_mark_what_does_not() -> None:
    state = state_with(*recorded("hangs/GPD307-stale-lock"))
    for text, expected in (("lock$|stand_by", ["16972"]), ("!waiting", ["16972", "16969"]), ("(", [])):
        state.filter = Filter(text=text)
        drawn = state.draw(80, 20)
        assert drawn is not None
        assert list(drawn.keys.values()) == expected


def test_bars_tell_where_one_is() -> None:
    state = state_with(*recorded("hangs/GPD307-stale-lock"))

    def status() -> str:
        return "".join(t for t, _ in status_row(state, 80, heard_at=0.0, now=1.0))

    assert status().startswith("recorded, look 3 of 3")
    assert "HUNG" in "".join(t for t, _ in title_row(state, 80))
    state.step(-1)
    assert "look 2 of 3, the verdict rests on all" in status()
    for width in (60, 80, 120):
        row = "".join(t for t, _ in screens_row(state, width))
        assert len(row) <= width
        assert row.startswith("[1 over")


def test_an_empty_log_is_told_from_one_that_was_not_read() -> None:
    frame = recorded("hangs/GPD307-stale-lock")[-1]
    empty = LogFacts(sources=(LogSource(name="server.log", bytes=0, lines=0),), engine="unknown")
    for log, words in (
        (ServerLog(root_pid=1, facts=empty), "server.log: nothing has been written to it yet"),
        (ServerLog(root_pid=1, reason="no files", help="gpudiag explain FILE"), "the log cannot be read: no files"),
    ):
        shown = replace(frame, packed=pack(replace(unpack(frame.packed), logs=(log,))))
        assert words in pages(state_with(shown), 80, 20, "log")


EVIL = "\x1b[2J\u202e\x07\n\udcff"


def test_what_comes_from_a_target_cannot_write_to_the_terminal() -> None:
    frame = recorded("hangs/GPD307-stale-lock")[-1]
    details = unpack(frame.packed)
    assert details.observation is not None
    looks = tuple(replace(s, processes=tuple(map(_evil, s.processes))) for s in details.observation.snapshots)
    hostile = replace(frame, packed=pack(replace(details, observation=replace(details.observation, snapshots=looks))))
    state = state_with(hostile)
    state.opened = {"environment"}
    for screen, _ in SCREENS:
        state.show(screen)
        drawn = state.draw(80, 20)
        assert drawn is not None
        text = "".join(text for row in drawn.rows for text, _ in row)
        assert text.isprintable(), screen
    state.show("rank")
    assert "x1b[2J" in pages(state, 200, 200, "rank")


def _evil(process: Process) -> Process:
    """The process with a hostile text wherever it has a say."""

    def frames(stack: PyStack) -> PyStack:
        bad = tuple(replace(f, function=EVIL + f.function, file=EVIL + f.file) for f in stack.frames)
        return replace(stack, name=EVIL, frames=bad)

    changed = replace(
        process,
        name=EVIL,
        python_version=EVIL,
        threads=tuple(replace(t, name=EVIL, wchan=EVIL) for t in process.threads),
        cmdline=Ok(value=(EVIL, EVIL), at=0.0),
        environ=Ok(value={"NCCL_" + EVIL: EVIL, "NCCL_DEBUG": EVIL}, at=0.0),
    )
    if isinstance(process.stacks, Ok):
        changed = replace(changed, stacks=replace(process.stacks, value=tuple(map(frames, process.stacks.value))))
    if isinstance(process.fds, Ok):
        fds = tuple(replace(fd, target=EVIL + fd.target) for fd in process.fds.value)
        changed = replace(changed, fds=replace(process.fds, value=fds))
    return changed
