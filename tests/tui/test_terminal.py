"""In a real terminal: the screen is entered and left, whatever happens in between."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"
RECORDING = "tests/recordings/hangs/GPD307-stale-lock.gpudiag"
SHOW = ("-m", "gpudiag", "explain", RECORDING, "--tui")
PATIENCE_S = 60.0
BROKEN = f"""
import sys
from gpudiag.cli.main import main
from gpudiag.tui.state import State
draw = State.draw
def broken(self, width, height):
    if self.screen == "log":
        raise ZeroDivisionError("a bug")
    return draw(self, width, height)
State.draw = broken
main(["explain", {RECORDING!r}, "--tui"])
"""


class Terminal:
    """A program in a pseudo-terminal of 80x24."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.seen = b""
        self._master = master

    def type(self, keys: str | bytes) -> None:
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def read_until(self, wanted: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in self.seen:
            assert time.monotonic() < deadline, f"{wanted!r} was not shown: {self.seen[-400:]!r}"
            assert self._read(), f"{wanted!r} was not shown: {self.seen[-400:]!r}"

    def hang_up(self) -> None:
        """Take the terminal away."""
        os.close(self._master)
        os.kill(self.process.pid, signal.SIGHUP)

    def end(self) -> int:
        """The exit code, after everything was read."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        if not select.select([self._master], [], [], PATIENCE_S)[0]:
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:
            return False
        self.seen += data
        return bool(data)


@contextmanager
def terminal(arguments: Sequence[str], **variables: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **variables}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment, start_new_session=True
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            os.close(master)


def test_the_screen_is_left_on_q() -> None:
    with terminal(SHOW) as shown:
        shown.read_until(b"GPD307")
        assert ENTERED in shown.seen
        shown.type("q")
        assert shown.end() == 0
        assert shown.seen.rindex(LEFT) > shown.seen.rindex(ENTERED)


def test_bytes_that_are_no_text_do_not_end_it() -> None:
    with terminal(SHOW) as shown:
        shown.read_until(b"GPD307")
        shown.type(b"\xc9\xff\x80\xe9?")
        shown.read_until(b"down for more")
        os.kill(shown.process.pid, signal.SIGTERM)
        assert shown.end() == 143
        assert b"UnicodeDecodeError" not in shown.seen


def test_the_screen_is_left_on_sigterm() -> None:
    with terminal(SHOW) as shown:
        shown.read_until(b"GPD307")
        os.kill(shown.process.pid, signal.SIGTERM)
        assert shown.end() == 143
        assert LEFT in shown.seen


@pytest.mark.parametrize(("keys", "shows"), [("?", b"down for more"), ("/", b"filter /"), (":", b"hat to do"), ("", ENTERED)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_whatever_is_open(keys: str, shows: bytes, number: signal.Signals) -> None:
    """In the middle of the drawing too, which it does not break."""
    with terminal(SHOW) as shown:
        if keys:
            shown.read_until(b"GPD307")
            shown.type(keys)
        shown.read_until(shows)
        os.kill(shown.process.pid, number)
        assert shown.end() == 128 + number
        left = shown.seen[shown.seen.rindex(LEFT) :]
        assert b"Traceback" not in left
        assert b"error" not in left


def test_a_terminal_that_is_gone_ends_it() -> None:
    with terminal(SHOW) as shown:
        shown.read_until(b"GPD307")
        shown.hang_up()
        assert shown.process.wait(PATIENCE_S) in (129, -signal.SIGHUP)


def test_a_bug_leaves_the_screen_and_says_where_the_recording_is() -> None:
    with terminal(["-c", BROKEN]) as shown:
        shown.read_until(b"GPD307")
        shown.type("6")
        assert shown.end() == 70
        after = shown.seen[shown.seen.rindex(LEFT) :].decode()
        assert "a bug" in after
        assert "the terminal interface broke; what was seen is kept" in after
        path = after.split("gpudiag explain ")[1].split()[0]
        assert os.path.getsize(path) > 1000
        assert os.stat(path).st_mode & 0o777 == 0o600
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def test_what_is_no_recording_is_said_after_the_screen_is_left(tmp_path: Path) -> None:
    torn = tmp_path / "torn.gpudiag"
    torn.write_bytes((ROOT / RECORDING).read_bytes()[:2000])
    with terminal(["-m", "gpudiag", "explain", str(torn), "--tui"]) as shown:
        assert shown.end() == 2
        assert b"torn.gpudiag is truncated or no recording" in shown.seen[shown.seen.rindex(LEFT) :]


@pytest.mark.parametrize(("arguments", "code", "words"), [((), 0, b"Usage: gpudiag"), (SHOW[2:], 2, b"--tui needs a terminal")])
def test_a_dumb_terminal_gets_no_screen(arguments: Sequence[str], code: int, words: bytes) -> None:
    with terminal(["-m", "gpudiag", *arguments], TERM="dumb") as shown:
        assert shown.end() == code
        assert words in shown.seen
        assert b"\x1b[" not in shown.seen
