"""Whether the terminal interface says what is said without it: of each recording, each log and each launch of the corpus.

    python -m tests.faults.screens FILE...
    python -m tests.faults.screens --run DIRECTORY

prints, as JSON, the rows that `gpudiag explain FILE... --tui` draws on a screen of 80x24, title first, or those with which
`gpudiag launch` shows its run, once a verdict stands there.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpudiag.cli import main, watch
from gpudiag.tui import entry
from gpudiag.tui.app import GpudiagApp
from gpudiag.tui.lines import Lines
from gpudiag.tui.sources import Source
from tests.cli.programs import environment
from tests.faults import launched, logs, recorded
from tests.faults.asking import LIMIT_S, NOTHING, printed
from tests.faults.case import Culprit, Fault, Report, Staged, Variation

VERDICT_S = 30.0
_PATH_END = 24
"""Characters of a path by which it is recognised: a row cuts it at its beginning."""
STATES = {"hung": "HUNG", "slow": "SLOW", "idle": "IDLE", "serving": "SERVING", "starting": "STARTING", "crashed": "CRASHED"}


def differences(shown: list[str], report: Report) -> list[str]:
    """What the report says and the screen does not. Rows are compared without blanks: a sentence is wrapped anywhere."""
    title, head = shown[0], _head(shown[1:])
    verdict, target = report["verdict"], report["target"]
    wanted = {"code": verdict["code"], "title": verdict["title"], "next step": verdict["next_step"]}
    culprits = verdict["culprits"]
    wanted |= _of_culprit(culprits[0], alone=len(culprits) == 1) if culprits else {}
    row = "".join(shown[1].split())
    missing = [f"{what} {value!r}" for what, value in wanted.items() if value and "".join(str(value).split()) not in head]
    if verdict["code"] and not row.endswith(verdict["confidence"]):
        missing.append(f"confidence {verdict['confidence']}")
    if target is not None and (state := STATES.get(target["state"])) and state not in title:
        missing.append(f"state {state}")
    return missing


def _head(rows: list[str]) -> str:
    """The verdict, without blanks and without what stands at the right edge of its first row."""
    first, *others = rows
    end = next((i for i, row in enumerate(others) if row.startswith("──")), len(others))
    for word in ("proven", "strong", "weak"):
        first = first.removesuffix(word)
    return "".join("".join((first, *others[:end])).split())


def _of_culprit(culprit: dict[str, Any], *, alone: bool) -> dict[str, object]:
    """What tells the first culprit from all others. Ranks that stand together are written as a range."""
    rank, pid, path = culprit["rank"], culprit["pid"], culprit["path"]
    place = f"{culprit['file'].rpartition('/')[2]}:{culprit['line']}" if culprit["file"] and culprit["line"] else None
    return {
        "rank": f"rank {rank}" if rank is not None and alone and culprit["node"] != f"file:{path}" else None,
        "pid": pid,
        "place": place,
        "path": path[-_PATH_END:] if path else None,
        "kernel": culprit["kernel"],
    }


def screen(arguments: tuple[str, ...]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.screens", *arguments],
        env=environment(TERM="xterm-256color"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    rows: list[str] = json.loads(done.stdout)
    return rows


def both(arguments: tuple[str, ...]) -> Report:
    """An error, with what differs, if the screen says otherwise than the report."""
    return answer(differences(screen(arguments[1:]), printed(arguments)))


def answer(missing: list[str]) -> Report:
    said = {"severity": "error", "title": f"not on the screen: {', '.join(missing)}"} if missing else {}
    return {"verdict": {**NOTHING, **said}, "findings": []}


def on_screen(fault: Fault) -> Fault:
    """The entry for what another one stages. Whether its verdict is right is the other one's question."""

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        with fault.stage(vary) as staged:
            yield Staged(staged.arguments, Culprit(), both)

    return Fault(name=f"screen-{fault.name}", planted=fault.planted, code=None, ground="screen", stage=stage)


def on_screen_of_run(fault: Fault) -> Fault:
    """The same for a server under the supervisor: its sentence has the code and the title of its report.

    `gpudiag explain` of its directory, which holds every look, must come to the same too.
    """

    @contextmanager
    def stage(vary: Variation) -> Iterator[Staged]:
        with fault.stage(vary) as staged:
            assert staged.ask is not None
            supervisor = staged.ask

            def compared(arguments: tuple[str, ...]) -> Report:
                verdict, run = supervisor(arguments)["verdict"], str(vary.directory / "run")
                wanted = f"{verdict['code']} {verdict['title']}"
                missing = [] if "".join(wanted.split()) in _head(screen(("--run", run))[1:]) else [wanted]
                explained = printed(("explain", run))["verdict"]
                same = [explained[key] == verdict[key] for key in ("code", "title")]
                return answer([*missing, *([] if all(same) else [f"{wanted} by explain: {explained['title']}"])])

            yield Staged(staged.arguments, Culprit(), compared)

    return Fault(name=f"screen-{fault.name}", planted=fault.planted, code=None, ground="screen", stage=stage, live=True)


SCREENS = (
    *(on_screen_of_run(fault) for fault in launched.FAULTS if fault.live),
    *(
        on_screen(fault)
        for part in (recorded, logs)
        for fault in (*part.FAULTS, *part.LOOK_ALIKES, *getattr(part, "UNDECIDED", ()))
    ),
)


def drawn(source: Source) -> list[str]:
    """The title and the rows of the first screen: of a source that ends once all was taken, of a live one with a verdict."""

    async def read() -> list[str]:
        app = GpudiagApp(source)
        async with app.run_test(size=(80, 24)) as pilot:
            deadline = time.monotonic() + VERDICT_S
            while not _complete(source, _rows(app)) and time.monotonic() < deadline:
                await pilot.pause(0.02)
            await pilot.pause()
            return _rows(app)

    return asyncio.run(read())


def _complete(source: Source, rows: list[str]) -> bool:
    if source.live:
        return any("GPD" in row for row in rows)
    return not any(thread.name == "reader" for thread in threading.enumerate())


def _rows(app: GpudiagApp) -> list[str]:
    title, body = (app.query_one(f"#{name}", Lines).drawn.rows for name in ("title", "body"))
    return ["".join(text for text, _ in row).rstrip() for row in (*title[:1], *body)]


def run(source: Source, **_: object) -> int:
    """In place of a terminal."""
    print(json.dumps(drawn(source)))
    source.stop()
    return 0


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry, "run", run)
        patch.setattr(watch, "fits", lambda: True)
        given = sys.argv[1:]
        sys.exit(entry.open_run(Path(given[1])) if given[0] == "--run" else main.run(["explain", *given, "--tui"]))
