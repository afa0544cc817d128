"""The run directory of a server that gpudiag started: how far it is, and the last lines that it printed."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from gpudiag.collect import procfs
from gpudiag.doctor.reads import bounded
from gpudiag.errors import UsageError
from gpudiag.launch.run_directory import MANIFEST, MAX_FILE_BYTES, PROGRESS
from gpudiag.model.report import REPORT_SCHEMA, Report
from gpudiag.model.run import ENDED, RUN_SCHEMA, RunManifest, RunProgress
from gpudiag.render.plain import clean
from gpudiag.tui.frame import Run

SUPERVISOR: Final = b"gpudiag.launch.supervisor_process"
_CMDLINE_BYTES: Final = 1 << 16
TAIL_BYTES: Final = 64 << 10
TAIL_LINES: Final = 200

T = TypeVar("T", RunManifest, RunProgress, Report)


def read_run(directory: Path) -> Run:
    """What the directory says now. Raises UsageError if it holds no run."""
    manifest = _read(directory / MANIFEST, RunManifest)
    if manifest is None:
        raise UsageError(f"{directory} is no run directory: there is no {MANIFEST} in it", help="gpudiag launch ...")
    return Run(manifest=manifest, progress=_read(directory / PROGRESS, RunProgress), tail=_tail(directory / manifest.log))


def read_run_as_it_is(directory: Path) -> Run:
    """The same, without belief in a progress.json whose writer was killed: it would say 'serving' for ever."""
    run = read_run(directory)
    if _settled(run) or run.manifest.host != platform.node() or _is_supervisor(run.manifest.supervisor_pid):
        return run
    # Its last words may have come between the two.
    run = read_run(directory)
    progress, manifest = run.progress, run.manifest
    if progress is None or _settled(run):
        return run
    gone = f"supervisor (pid {manifest.supervisor_pid}) is gone"
    if manifest.server_pid is not None and _lives(manifest.server_pid):
        now = replace(progress, sentence=f"its {gone}, so nothing new is known of its start and nobody watches it", serving=None)
    else:
        now = replace(progress, state="killed", sentence=f"ended, and nobody saw how: its {gone} too", serving=None)
    return replace(run, progress=now)


def _settled(run: Run) -> bool:
    return run.progress is None or run.progress.state in ENDED


def _is_supervisor(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return SUPERVISOR in procfs.read_all(f"/proc/{pid}/cmdline", _CMDLINE_BYTES)
    return False


def _lives(pid: int) -> bool:
    """A zombie has no command line any more."""
    with contextlib.suppress(OSError):
        return bool(procfs.read_once(f"/proc/{pid}/cmdline", _CMDLINE_BYTES))
    return False


def read_report(directory: Path, run: Run) -> Report | None:
    """The report of the last stall or of the end, which the supervisor wrote; None where there is none, or it went."""
    name = run.progress.report if run.progress else None
    if name is None or Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    return _read(directory / name, Report)


def _read(path: Path, kind: type[T]) -> T | None:
    """None for a file that is not there yet. Raises UsageError for one that is not what it should be."""
    found = _decoded(path, kind)
    if isinstance(found, Exception):
        # On a full disk progress.json is written over in place: it may have been read half-way through that.
        found = _decoded(path, kind)
    if isinstance(found, Exception):
        raise UsageError(f"{path} is damaged, or of another version of gpudiag", help="start the server again") from found
    if found is not None and found.schema not in (RUN_SCHEMA, REPORT_SCHEMA):
        raise UsageError(f"{path} was written by another version of gpudiag", help="pip install --upgrade gpudiag")
    return found


def _decoded(path: Path, kind: type[T]) -> T | Exception | None:
    """What is wrong with it, where it does not hold what it should. Raises UsageError if it cannot be read."""
    try:
        return msgspec.json.decode(bounded(path, MAX_FILE_BYTES), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", help=f"ls -l {path}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        return error


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
