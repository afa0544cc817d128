"""Every action of the registry, by its keys."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.session.load import load
from gpudiag.tui.actions import ACTIONS, GROUPS, SCREENS, offered, table
from gpudiag.tui.deeds import Deeds
from gpudiag.tui.frame import Details, Frame, Note, pack, unpack
from gpudiag.tui.secrets import shown_command
from tests.support.checkout import ROOT
from tests.support.processes import wait_until
from tests.tui.driving import Driver, drive
from tests.tui.samples import recorded, widened

Test = Callable[[Driver], Coroutine[Any, Any, None]]
TESTED: dict[str, Test] = {}
HUNG = "hangs/GPD307-stale-lock"


def looks(count: int = 12) -> list[Frame]:
    """The last look of a recording again and again, a second apart."""
    last = recorded(HUNG)[-1]
    return [replace(last, number=n, at=last.at - count + n) for n in range(1, count + 1)]


def action(*ids: str) -> Callable[[Test], Test]:
    def register(test: Test) -> Test:
        TESTED.update(dict.fromkeys(ids, test))
        return test

    return register


@action("quit")
async def quits(driver: Driver) -> None:
    await driver.press("q")
    assert driver.source.stopped
    assert driver.app.return_code == 0


@action("help")
async def shows_all_keys(driver: Driver) -> None:
    await driver.press("question_mark")
    assert "Screens" in driver.screen()
    assert "the verdict, the culprit" in driver.screen()
    await driver.press("escape")
    assert "GPD307" in driver.screen()


@action("palette")
async def finds_an_action_by_name(driver: Driver) -> None:
    await driver.press("colon", *"runbook")
    assert "findings" in driver.screen()
    await driver.press("enter")
    assert "[7 findings]" in driver.row("screens")


@action("back")
async def goes_back_step_by_step(driver: Driver) -> None:
    driver.app.state.show("log")
    await driver.press("left", "slash", "x", "enter")
    assert driver.app.state.filter.text == "x"
    await driver.press("escape")
    assert (driver.app.state.filter.text, driver.app.state.shown) == ("", 11)
    await driver.press("escape")
    assert (driver.app.state.shown, driver.app.state.screen) == (None, "log")
    await driver.press("escape")
    assert driver.app.state.screen == "overview"


@action(*(f"screen_{name}" for name, _ in SCREENS))
async def shows_each_screen(driver: Driver) -> None:
    for number, (name, _) in reversed(list(enumerate(SCREENS, 1))):
        await driver.press(str(number))
        assert driver.app.state.screen == name
        assert f"[{number} " in driver.row("screens")


@action("up", "down", "top", "bottom", "open")
async def chooses_a_rank_and_opens_it(driver: Driver) -> None:
    chosen = [row for row in driver.body().splitlines() if row.lstrip().startswith("✗3")]
    assert chosen, "the culprit has a lane"
    assert "▸✗3" in driver.screen()
    await driver.press("up")
    assert "▸ 2" in driver.screen()
    await driver.press("j", "j")
    assert "▸ f" in driver.screen()
    await driver.press("G")
    assert "▸ f" in driver.screen()
    await driver.press("g")
    assert "▸✗3" in driver.screen()
    await driver.press("k", "enter")
    assert driver.app.state.screen == "rank"
    assert driver.body().startswith("rank 2  pid 16975")
    await driver.press("enter")
    assert "more frames" not in driver.body().split("locks")[0]


@action("page_up", "page_down")
async def scrolls_by_pages(driver: Driver) -> None:
    await driver.press("7", "pagedown")
    top = driver.app.state.place.top
    assert top > 10
    await driver.press("ctrl+f", "pageup")
    assert driver.app.state.place.top == top


@action("next_rank", "previous_rank")
async def goes_from_rank_to_rank(driver: Driver) -> None:
    await driver.press("2")
    assert driver.body().startswith("rank 3 ")
    await driver.press("tab")
    assert driver.body().startswith("frontend ")
    await driver.press("shift+tab", "shift+tab")
    assert driver.body().startswith("rank 2 ")


@action("next_finding", "previous_finding")
async def shows_findings_with_their_page(driver: Driver) -> None:
    await driver.press("n")
    assert driver.app.state.screen == "findings"
    assert "What it means" in driver.body()
    count = len(driver.app.state.report.findings) if driver.app.state.report else 0
    await driver.press("n")
    assert driver.app.state.finding == 1 % count
    await driver.press("N")
    assert driver.app.state.finding == 0


@action("next_server")
async def shows_the_other_server(driver: Driver) -> None:
    first, second = recorded(HUNG)[-1], recorded("hangs/GPD305-rank-stopped")[-1]
    await driver.say(replace(first, number=13, reports=(*first.reports, *second.reports)))
    assert "GPD307" in driver.body()
    await driver.press("o")
    assert "GPD305" in driver.body()
    await driver.press("o")
    assert "GPD307" in driver.body()


@action("filter")
async def filters_rows(driver: Driver) -> None:
    await driver.press("slash", *"lock", "enter")
    assert list(driver.app.query_one("#body").drawn.keys.values()) == ["16972"]  # type: ignore[attr-defined]
    assert "filter /lock" in driver.row("status")
    await driver.press("slash", "escape")
    assert driver.app.state.filter.text == "lock"


@action("sort", "reverse", "group")
async def orders_rows(driver: Driver) -> None:
    frame = replace(widened(8)[-1], number=13)
    await driver.say(frame)

    def order() -> list[str]:
        return list(driver.app.query_one("#body").drawn.keys.values())  # type: ignore[attr-defined]

    plain = order()
    await driver.press("S")
    assert order() == plain[::-1]
    await driver.press("S", "s", "s", "s", "s")
    assert order()[:1] == ["603"], "most collectives first"
    assert "nccl" in driver.body()
    await driver.press("S")
    assert "8604" in order()[:2], "a rank that lags comes early when the order is turned round"
    await driver.press("t")
    assert len(order()) == 3
    await driver.press("t")
    assert len(order()) == 9


@action("pause")
async def holds_the_view_and_not_the_collection(driver: Driver) -> None:
    await driver.press("space")
    shown = driver.row("status")
    assert "paused" in shown
    newer = replace(looks()[-1], number=13, at=looks()[-1].at + 1)
    await driver.say(newer)
    assert driver.app.state.frame is not None
    assert driver.app.state.frame.number == 12
    assert driver.app.state.ring.newest == newer
    await driver.press("space")
    assert driver.app.state.frame == newer
    assert "live" in driver.row("status")


@action("earlier", "later", "much_earlier", "much_later", "oldest", "now")
async def travels_in_time(driver: Driver) -> None:
    async def at(*keys: str) -> int | None:
        await driver.press(*keys)
        return driver.app.state.frame.number if driver.app.state.frame else None

    assert await at("left") == 11
    assert await at("left", "right") == 11
    assert await at("shift+left") == 1
    assert await at("shift+right") == 11
    assert await at("home") == 1
    assert "look 1 of 12, 11 s before the newest" in driver.row("status")
    assert await at("end") == 12
    assert driver.app.state.shown is None


@action("refresh")
async def looks_at_once_and_starts_a_dead_collector_again(driver: Driver) -> None:
    await driver.press("r")
    assert driver.source.asked == [("look", 1.0)]
    await driver.say(Note(text="the collector ended: killed by signal 9", help="r starts it again", trouble=True))
    assert "killed by signal 9" in driver.row("status")
    assert "GPD307" in driver.body(), "what was seen stays"
    await driver.press("r")
    assert driver.source.starts == 2


@action("faster", "slower")
async def changes_the_pace_within_bounds(driver: Driver) -> None:
    await driver.press(*["plus"] * 5)
    assert driver.source.asked[-1] == ("interval", 0.25)
    await driver.press(*["minus"] * 12)
    assert driver.source.asked[-1] == ("interval", 60.0)


@action("copy")
async def copies_a_redacted_report(driver: Driver) -> None:
    copied: list[str] = []
    driver.app.copy_to_clipboard = copied.append  # type: ignore[assignment,method-assign]
    await driver.press("y")
    assert copied[0].startswith("**GPD307")
    assert "in the clipboard" in driver.row("status")


@action("write", "record")
async def writes_files_and_never_over_others(driver: Driver) -> None:
    await driver.press("w", *["ctrl+u"], *"report.md", "enter")
    assert Path("report.md").read_text().startswith("**GPD307")  # noqa: ASYNC240  a small file
    assert "the report is in report.md" in driver.row("status")
    await driver.press("w", "ctrl+u", *"report.md", "enter")
    assert "cannot write report.md" in driver.row("status")
    await driver.press("ctrl+s", "ctrl+u", *"kept.gpudiag", "enter")
    assert load(Path("kept.gpudiag")).manifest.redacted


@action("environment")
async def shows_variables_without_secrets(driver: Driver) -> None:
    frame = recorded(HUNG)[-1]
    details = unpack(frame.packed)
    assert details.observation is not None
    secret = {"HF_TOKEN": "hf_" + "a1" * 17, "NCCL_DEBUG": "INFO", "MY_PLAN": "world", "NCCL_HOST": "http://u:pw@h"}
    looks_ = tuple(
        replace(s, processes=tuple(_with_variables(p, secret) for p in s.processes)) for s in details.observation.snapshots
    )
    shown = Details(observation=replace(details.observation, snapshots=looks_), reports=details.reports)
    await driver.say(replace(frame, number=13, packed=pack(shown)))
    await driver.press("e")
    text = driver.body().split("environment")[1]
    assert "NCCL_DEBUG=INFO" in text
    assert "hf_" not in text
    assert "world" not in text
    assert "u:pw" not in text
    await driver.press("e")
    assert "NCCL_DEBUG" not in driver.body()


def _with_variables(process: Process, variables: dict[str, str]) -> Process:
    return replace(process, environ=replace(process.environ, value=variables)) if hasattr(process.environ, "value") else process


@action("native")
async def asks_before_it_stops_anything(driver: Driver) -> None:
    await driver.press("c")
    assert "stopped by ptrace" in driver.screen()
    await driver.press("enter")
    assert driver.source.asked == []
    await driver.press("c", "y")
    assert driver.source.asked == [("native", 1.0)]
    last = looks()[-1]
    await driver.say(replace(last, number=13, native=True))
    await driver.say(replace(last, number=14))
    assert driver.app.state.frame is not None
    assert driver.app.state.frame.number == 13, "what was asked for stays on the screen"


@action("signal")
async def is_not_there_unless_it_was_allowed(driver: Driver) -> None:
    await driver.press("K")
    assert "SIGTERM" not in driver.screen()
    assert "signal" not in {a.id for a in driver.app.actions}


@pytest.mark.parametrize("name", [a.id for a in ACTIONS])
def test_every_action(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if TESTED[name].__name__ in _done:
        return
    monkeypatch.chdir(tmp_path)
    drive(TESTED[name], looks())
    _done.add(TESTED[name].__name__)


_done: set[str] = set()
"""Tests that prove several actions run once."""


def test_every_action_has_a_method_and_a_group() -> None:
    for known in ACTIONS:
        assert callable(getattr(Deeds, f"do_{known.id}"))
        assert known.group in GROUPS
    keys = [key for known in ACTIONS for key in known.keys]
    assert len(keys) == len(set(keys))


def test_a_command_line_is_shown_without_its_secrets() -> None:
    details = unpack(recorded(HUNG)[-1].packed)
    assert details.observation is not None
    process = details.observation.last.processes[0]
    key = "sk-" + "a1b2" * 6
    arguments = ("/opt/venv/bin/vllm", "serve", "model", "--api-key", "open sesame", "--port", "8000", f"--header=Bearer {key}")
    shown = shown_command(replace(process, cmdline=Ok(value=arguments, at=0.0)))
    assert shown == "/opt/venv/bin/vllm serve model --api-key (hidden) --port 8000 --header=Bearer (hidden)"


def test_signals_are_offered_only_when_allowed() -> None:
    assert {a.id for a in offered(signals=True)} - {a.id for a in offered(signals=False)} == {"signal"}


def test_a_signal_goes_to_the_process_that_was_shown_and_only_after_a_yes() -> None:
    program = subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"], stdin=-1, stdout=-1)
    assert program.stdout is not None
    program.stdout.readline()
    with open(f"/proc/{program.pid}/stat") as stat:
        started = int(stat.read().rpartition(")")[2].split()[19])

    async def signals(driver: Driver) -> None:
        await driver.say(frame_of(started + 1))
        await driver.press("2", "K")
        assert f"pid {program.pid}" in driver.screen()
        assert "a command" in driver.screen()
        await driver.press("enter")
        assert program.poll() is None
        await driver.press("K", "y")
        assert "belongs to another process" in driver.row("status")
        assert program.poll() is None
        await driver.say(replace(frame_of(started), number=14))
        await driver.press("K", "y")
        wait_until(lambda: program.poll() is not None, "the end of the process")

    def frame_of(start_ticks: int) -> Frame:
        return _about(program.pid, start_ticks)

    try:
        drive(signals, looks(), allow_signals=True)
        assert program.returncode == -15
    finally:
        program.kill()
        program.communicate()


def _about(pid: int, start_ticks: int) -> Frame:
    """The recorded look, as if the first worker were the process with this pid."""
    frame = recorded(HUNG)[-1]
    report = frame.reports[0]
    details = unpack(frame.packed)
    assert report.target is not None
    assert details.observation is not None
    old = report.verdict.culprits[0].pid
    workers = tuple(replace(w, pid=pid) if w.pid == old else w for w in report.target.workers)
    verdict = replace(report.verdict, culprits=tuple(replace(c, pid=pid) for c in report.verdict.culprits))
    shown = replace(report, target=replace(report.target, workers=workers), verdict=verdict)
    last = details.observation.last
    processes = tuple(
        replace(p, pid=pid, start_ticks=start_ticks, cmdline=replace(p.cmdline, value=("a", "command"))) if p.pid == old else p
        for p in last.processes
    )
    kept = Details(observation=replace(details.observation, snapshots=(replace(last, processes=processes),)), reports=(shown,))
    return replace(frame, number=13, reports=(shown,), packed=pack(kept))


def test_the_readme_has_the_keys() -> None:
    readme = ROOT / "README.md"
    before, begin, rest = readme.read_text(encoding="utf-8").partition("<!-- keys -->\n")
    shown, end, after = rest.partition("<!-- /keys -->")
    assert begin
    assert end
    if os.environ.get("GPUDIAG_UPDATE_SNAPSHOTS"):
        readme.write_text(f"{before}{begin}{table()}{end}{after}", encoding="utf-8")
        return
    assert shown == table()
