"""Errors that reach the user, and the exit codes of the program."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; 1 beats 5."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    NO_TARGET = 3
    NOT_INSPECTABLE = 4
    PARTIAL = 5
    INTERNAL = 70
    INTERRUPTED = 130


class GpudiagError(Exception):
    """An error with one clear line for the user.

    `message` says what happened and why it can; `help` what to type next, possibly empty.
    """

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help


class UsageError(GpudiagError):
    """The arguments do not fit together or name something that does not exist."""

    exit_code = ExitCode.USAGE


class NoTargetError(GpudiagError):
    """No such process, or no server that gpudiag recognises."""

    exit_code = ExitCode.NO_TARGET


class NotInspectableError(GpudiagError):
    """The target is there but nothing useful can be read from it."""

    exit_code = ExitCode.NOT_INSPECTABLE


class RecordingError(UsageError):
    """A recording is truncated, of another version, or no recording at all."""
