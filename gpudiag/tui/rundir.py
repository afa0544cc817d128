"""The run directory of a server that gpudiag started: how far it is, and the last lines that it printed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gpudiag.errors import UsageError
from gpudiag.launch.run_directory import MANIFEST, MAX_FILE_BYTES, PROGRESS
from gpudiag.model.report import REPORT_SCHEMA, Report
from gpudiag.model.run import RUN_SCHEMA, RunManifest, RunProgress
from gpudiag.render.plain import clean
from gpudiag.tui.frame import Run

TAIL_BYTES: Final = 64 << 10
TAIL_LINES: Final = 200

T = TypeVar("T", RunManifest, RunProgress, Report)


def read_run(directory: Path) -> Run:
    """What the directory says now. Raises UsageError if it holds no run."""
    manifest = _read(directory / MANIFEST, RunManifest)
    if manifest is None:
        raise UsageError(f"{directory} is no run directory: there is no {MANIFEST} in it", help="gpudiag launch ...")
    return Run(manifest=manifest, progress=_read(directory / PROGRESS, RunProgress), tail=_tail(directory / manifest.log))


def read_report(directory: Path, run: Run) -> Report | None:
    """The report of the last stall or of the end, which the supervisor wrote; None where there is none, or it went."""
    name = run.progress.report if run.progress else None
    if name is None or Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    return _read(directory / name, Report)


def _read(path: Path, kind: type[T]) -> T | None:
    """None for a file that is not there yet. Raises UsageError for one that is not what it should be."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", help=f"ls -l {path}") from error
    with open(handle, "rb") as file:
        data = file.read(MAX_FILE_BYTES)
    try:
        found = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{path} is damaged, or of another version of gpudiag", help="start the server again") from error
    if found.schema not in (RUN_SCHEMA, REPORT_SCHEMA):
        raise UsageError(f"{path} was written by another version of gpudiag", help="pip install --upgrade gpudiag")
    return found


def _tail(path: Path) -> tuple[str, ...]:
    """The last whole lines of a log, harmless. Empty where there is none: a server may not have printed yet."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            data = file.read(TAIL_BYTES)
    except OSError:
        return ()
    lines = data.decode("utf-8", "replace").splitlines()
    whole = lines[1:] if size > TAIL_BYTES else lines
    return tuple(clean(line.expandtabs(4)) for line in whole[-TAIL_LINES:])
