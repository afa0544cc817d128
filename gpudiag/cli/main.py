"""The entry point. It imports little, so that Ctrl-C is in good hands before the rest is loaded."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Final, NoReturn

_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run gpudiag with these arguments (default: the process's own) and exit."""
    with _interruptible():
        from gpudiag.cli.streams import open_missing

        open_missing()
        from gpudiag.cli.running import run_command
    with _terminating():
        code = run_command(sys.argv[1:] if argv is None else argv)
    sys.exit(code)


def run(argv: Sequence[str]) -> int:
    """Run gpudiag and return its exit code. Never raises but for SystemExit from a termination signal."""
    from gpudiag.cli.running import run_command

    with _terminating():
        return run_command(argv)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """While modules load there is nothing to clean up, and an exception out of an import may be swallowed: leave at once."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """While a command runs, SIGTERM and a lost terminal unwind it, so that it cleans up what it started."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
        raise SystemExit(128 + number)

    try:
        before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:
        # Only the main thread may set handlers; elsewhere somebody else is in charge of the process.
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main()
