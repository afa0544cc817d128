"""The child that looks: it reads, judges and sends frames, so that the terminal never waits for a server.

Started by `gpudiag.tui.live` as `python -m gpudiag.tui.collector PARENT_PID`. The first line on stdin is an `Order`, every
further one a `Wish`, as JSON. On stdout come frames and notes, each as four bytes of length and `frame.encode`. It ends
when stdin does, or with its parent.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import Final, get_args

import msgspec

from gpudiag.collect.options import LookOptions
from gpudiag.collect.parent_death import die_with
from gpudiag.collect.process_reader import Source
from gpudiag.collect.watch import Watch
from gpudiag.errors import GpudiagError, NoTargetError
from gpudiag.launch.run_directory import run_of
from gpudiag.model.log import ServerLog
from gpudiag.model.run import ENDED
from gpudiag.model.snapshot import Observation
from gpudiag.session import pipeline
from gpudiag.tui.build import frame_of_run, frame_of_watch, frame_with
from gpudiag.tui.frame import Frame, Message, Note, Run, encode
from gpudiag.tui.orders import LENGTH_BYTES, Order, Wish
from gpudiag.tui.rundir import read_report, read_run_as_it_is

_SHARE: Final = 0.2
"""Of one core that watching may take: what costs more is done less often."""
_LOG_EVERY_S: Final = 5.0
_LINE_BYTES: Final = 1 << 16


class Collector:
    """Looks, judges, sends; between two looks it listens."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._interval_s = order.interval_s
        self._number = 0
        self._watch: Watch | None = None
        self._native = False
        self._last: Frame | None = None
        self._logs: tuple[ServerLog, ...] = ()
        self._logs_at = 0.0
        self._told: tuple[ServerLog, ...] = ()

    def run(self) -> None:
        """Until stdin ends, or there is nothing more to look at."""
        try:
            self._until_told()
        except GpudiagError as error:
            send(Note(text=error.message, help=error.help, trouble=True))
        finally:
            self._forget()

    def _until_told(self) -> None:
        directory = self._directory()
        while True:
            began, spent_s = time.monotonic(), self._spent_s()
            if directory is not None:
                self._look_at_run(directory)
            else:
                self._look_at(self._order.pid or 0, None)
            took_s = time.monotonic() - began
            # The second look comes soon: one alone says nothing about change.
            every_s = max(self._interval_s, max(0.0, self._spent_s() - spent_s) / _SHARE)
            pause_s = min(1.0, self._interval_s) if self._number <= 1 else max(0.0, every_s - took_s)
            if not self._listen(time.monotonic() + pause_s):
                return

    def _spent_s(self) -> float:
        return self._watch.spent_s() if self._watch is not None else sum(os.times()[:4])

    def _directory(self) -> Path | None:
        """The run directory that was named, or that of the launch to which the server belongs."""
        if self._order.directory is not None:
            return Path(self._order.directory)
        found = run_of(self._order.pid or 0)
        return found[0].path if found is not None else None

    def _look_at_run(self, directory: Path) -> None:
        run = read_run_as_it_is(directory)
        pid = run.manifest.server_pid
        over = run.progress is not None and run.progress.state in ENDED
        if pid is None or over:
            self._forget()
            self._send_run(directory, run)
            return
        try:
            self._look_at(pid, run)
        except NoTargetError:
            self._forget()
            self._send_run(directory, run)

    def _send_run(self, directory: Path, run: Run) -> None:
        self._number += 1
        over = run.progress is not None and run.progress.state in ENDED
        if over and not self._told:
            from gpudiag.logs.facts import read_facts

            # All of it is there now: the first failure may stand far above the last lines.
            self._told = (ServerLog(root_pid=0, facts=read_facts([str(directory / run.manifest.log)])),)
        send(frame_of_run(run, number=self._number, report=read_report(directory, run), logs=self._told if over else ()))

    def _look_at(self, pid: int, run: Run | None) -> None:
        if self._watch is None:
            around = pipeline.scan()
            server = pipeline.server_with(around, pid)
            if server is None:
                raise NoTargetError(f"there is no process {pid}", help="gpudiag attach")
            options = look_options(self._order)
            self._watch = Watch(pipeline.tops(server, around), options)
            self._watch.__enter__()
        native, self._native = self._native, False
        self._number += 1
        if native and self._last is not None:
            self._last = frame_with(self._watch.look_natively(), self._last)
        else:
            observation = self._watch.look()
            self._last = frame_of_watch(observation, number=self._number, logs=self._read_logs(observation), run=run)
        send(self._last)

    def _read_logs(self, observation: Observation) -> tuple[ServerLog, ...]:
        """Not at every look: a long log takes a tenth of a second."""
        now = time.monotonic()
        if observation.has_change and (not self._logs_at or now - self._logs_at >= _LOG_EVERY_S):
            self._logs = pipeline.logs_of(observation)
            self._logs_at = now
        return self._logs

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
            self._watch = None

    def _listen(self, due: float) -> bool:
        """Wait for the next look, or for a wish. False once nobody is there any more."""
        while (left_s := due - time.monotonic()) > 0:
            if not select.select([0], [], [], left_s)[0]:
                return True
            line = os.read(0, _LINE_BYTES)
            if not line:
                return False
            for text in line.splitlines():
                wish = msgspec.json.decode(text, type=Wish)
                if wish.what == "interval":
                    self._interval_s = wish.interval_s
                    due = time.monotonic() + wish.interval_s
                else:
                    self._native = wish.what == "native"
                    due = 0.0
        return True


def look_options(order: Order) -> LookOptions:
    return LookOptions(withhold=frozenset(s for s in get_args(Source) if s in order.withhold), ras=order.ras)


def send(message: Message) -> None:
    data = encode(message)
    sys.stdout.buffer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    sys.stdout.buffer.flush()


def first_line() -> bytes:
    """Read unbuffered, so that nothing is left where `select` does not see it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def main() -> None:
    die_with(int(sys.argv[1]))
    Collector(msgspec.json.decode(first_line(), type=Order)).run()


if __name__ == "__main__":
    main()
