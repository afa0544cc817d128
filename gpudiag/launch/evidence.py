"""Takes evidence of a server when its supervisor asks: a recording, the report, the kernel's log, flight recorders.

It is a process of its own that waits with everything loaded: when a rank dies, SGLang kills its tree 5 s later and vLLM
after 4 to 9 s, and a fresh interpreter would use up a part of that. A look that hangs or fails costs the supervisor
nothing but this process. Requests come as JSON lines on stdin, answers go to stdout.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from gpudiag import __version__
from gpudiag.collect import look
from gpudiag.collect.options import LookOptions
from gpudiag.errors import GpudiagError, RecordingError
from gpudiag.files import replace_file
from gpudiag.launch.kernel_messages import kernel_messages
from gpudiag.launch.run_directory import ARMED, EVIDENCE, KERNEL_LOG, RECORDING, REPORT_JSON, REPORT_TEXT, RunDirectory
from gpudiag.logs.facts import read_facts
from gpudiag.model.log import ServerLog
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation
from gpudiag.render.json import dumps
from gpudiag.render.text import text
from gpudiag.rules.log_beside import with_log
from gpudiag.rules.log_verdict import explain_log
from gpudiag.session import pipeline, record

Why = Literal["process-died", "process-stopped", "quiet", "silent", "unanswered", "ready", "ended"]
"""What the supervisor noticed. It is no verdict."""

FLIGHT: Final = "flight"
_MOST_DUMP_BYTES: Final = 256 << 20


class Ask(Struct, frozen=True, kw_only=True):
    """`tops` are the pids whose trees are looked at; none: only what is left on disk is read. `confirm` takes 5 s longer.

    `with_live` joins the report of the last look to what the logs say: only if that look belongs to this end.
    """

    number: int
    why: Why
    root: int
    tops: tuple[int, ...]
    confirm: bool = False
    flight: bool = False
    flight_dump: str | None = None
    with_live: bool = False
    since: float = 0.0
    """Unix time of the start of the server."""


class Told(Struct, frozen=True, kw_only=True):
    """What came of it. `report` is relative to the run directory; None, with `error`, if there is none."""

    number: int
    why: Why
    report: str | None = None
    state: str = "unknown"
    status: str = "insufficient"
    code: str | None = None
    severity: str | None = None
    confidence: str | None = None
    title: str = ""
    error: str = ""
    unkept: str = ""
    """Why what was seen is not all on disk: the verdict stands all the same."""

    @property
    def hung(self) -> bool:
        """Whether the look says that the server does not go on by itself. A failing GPU below one that serves is none of that."""
        return self.status == "finding" and self.severity == "error" and self.state in ("hung", "crashed")


class Keeper:
    """A context in which something is written: a disk that is full must not cost the verdict. `why` says what failed first."""

    def __init__(self) -> None:
        self.why = ""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, OSError | RecordingError):
            return False
        reason = error if isinstance(error, OSError) else error.__cause__
        self.why = self.why or (reason.strerror if isinstance(reason, OSError) and reason.strerror else str(error))
        return True


class Taker:
    """Takes evidence into one run directory.

    Of looks one after the other that say the same it keeps the first and the last: a server that hangs for a night must
    not fill the disk.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._live: Report | None = None
        self._series: tuple[tuple[str, ...], list[Path]] = ((), [])

    def take(self, ask: Ask) -> Told:
        """Never raises for what the server is like: `error` says what went wrong."""
        began = time.monotonic()
        name = f"{ask.number:02d}-{ask.why}"
        folder = self._run.evidence / name
        keeper = Keeper()
        try:
            with keeper:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            report = self._report(ask, folder, began, keeper)
        except (OSError, GpudiagError, ValueError) as error:
            return Told(number=ask.number, why=ask.why, error=f"{type(error).__name__}: {error}"[:500])
        kept = False
        with keeper:
            replace_file(folder / REPORT_TEXT, text(report).encode())
            replace_file(folder / REPORT_JSON, (dumps(report, indent=2) + "\n").encode())
            kept = True
        verdict = report.verdict
        self._thin((ask.why, verdict.status, verdict.code or "", *(c.node for c in verdict.culprits)), folder)
        return Told(
            number=ask.number,
            why=ask.why,
            report=f"{EVIDENCE}/{name}/{REPORT_JSON}" if kept else None,
            unkept=keeper.why,
            state=report.target.state if report.target is not None else "unknown",
            status=verdict.status,
            code=verdict.code,
            severity=verdict.severity,
            confidence=verdict.confidence,
            title=verdict.title,
        )

    def _thin(self, said: tuple[str, ...], folder: Path) -> None:
        before, folders = self._series
        if before != said:
            self._series = (said, [folder])
            return
        for middle in folders[1:]:
            shutil.rmtree(middle, ignore_errors=True)
        self._series = (said, [folders[0], folder])

    def _report(self, ask: Ask, folder: Path, began: float, keeper: Keeper) -> Report:
        observation = self._look(ask) if ask.tops else None
        with keeper:
            self._keep_kernel_log(ask, folder)
        log = self._log(ask.root, folder)
        if observation is not None:
            # The recording first: whatever the judgement makes of it, it can be made again.
            with keeper:
                record.save(observation, folder / RECORDING, command="launch", force=True, logs=(log,))
            self._keep_flight(ask, folder)
            # An earlier look is not this one: what it said may have changed since.
            self._live = self._judge(observation, ask, time.monotonic() - began)
            if self._live is not None:
                return with_log(self._live, log, at=observation.last.at)
        told = explain_log(log.facts or read_facts(()), command="launch", version=__version__, host=os.uname().nodename)
        if ask.with_live and self._live is not None:
            return with_log(self._live, log)
        return told

    def _look(self, ask: Ask) -> Observation | None:
        options = LookOptions(flight_recorder=ask.flight)
        observation = look.observe(ask.tops, options, samples=2, interval_s=1.0, confirm=ask.confirm)
        return observation if observation.last.processes or observation.first.processes else None

    def _judge(self, observation: Observation, ask: Ask, took_s: float) -> Report | None:
        """The report on the server itself, None if it was gone before the look."""
        try:
            reports = pipeline.reports_of(observation, command="launch", wall_s=took_s)
        except GpudiagError:
            return None
        ours = [r for r in reports if r.target is not None and r.target.root_pid == ask.root]
        # Without its root a server is known by one of its orphans.
        return (ours or reports)[0]

    def _log(self, root: int, folder: Path) -> ServerLog:
        armed = (self._run.path / name for name in ARMED)
        paths = [p for p in (self._run.server_log, self._run.events_log, folder / KERNEL_LOG, *armed) if p.exists()]
        try:
            written = self._run.server_log.stat().st_mtime
        except OSError:
            written = None
        return ServerLog(root_pid=root, facts=read_facts([str(p) for p in paths]), written_at=written)

    def _keep_kernel_log(self, ask: Ask, folder: Path) -> None:
        messages = kernel_messages(ask.since)
        if messages:
            (folder / KERNEL_LOG).write_text(messages, encoding="utf-8")

    def _keep_flight(self, ask: Ask, folder: Path) -> None:
        """Copies of the dumps: the next one overwrites them."""
        if not ask.flight_dump:
            return
        stem = Path(ask.flight_dump)
        left = _MOST_DUMP_BYTES
        for dump in sorted(stem.parent.glob(f"{stem.name}[0-9]*")):
            with contextlib.suppress(OSError):
                left -= dump.stat().st_size
                if left < 0:
                    return
                (folder / FLIGHT).mkdir(mode=0o700, exist_ok=True)
                shutil.copy2(dump, folder / FLIGHT / dump.name, follow_symlinks=False)


def main(arguments: list[str]) -> None:
    """Answer requests until stdin ends, which it does with the supervisor."""
    taker = Taker(RunDirectory(Path(arguments[0])))
    for line in sys.stdin.buffer:
        told = taker.take(msgspec.json.decode(line, type=Ask))
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        sys.stdout.buffer.flush()
