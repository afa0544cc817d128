"""The directory of one run: where its files are, how they are written, and which run a process belongs to.

manifest.json and progress.json are described in model.run. server.log is what the server printed; events.log what its
supervisor saw of it (who ended and how); supervisor.log what went wrong in the supervisor itself; evidence/ holds one
directory for each time that evidence was taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gpudiag import config
from gpudiag.doctor.reads import bounded
from gpudiag.errors import UsageError
from gpudiag.files import replace_file
from gpudiag.model.decoding import decode_json
from gpudiag.model.run import RunManifest, RunProgress

T = TypeVar("T")

MANIFEST: Final = "manifest.json"
PROGRESS: Final = "progress.json"
SERVER_LOG: Final = "server.log"
EVENTS_LOG: Final = "events.log"
SUPERVISOR_LOG: Final = "supervisor.log"
EVIDENCE: Final = "evidence"
RECORDING: Final = "server.gpudiag"
REPORT_JSON: Final = "report.json"
REPORT_TEXT: Final = "report.txt"
KERNEL_LOG: Final = "kernel.log"
"""Files of one directory below `evidence`."""
ARMED: Final = ("nccl", "stacks")
"""Directories of a run in which the server leaves text of its own, where that was armed."""
PROGRESS_BYTES: Final = 8 << 10
"""Four times what a run with all phases and a long sentence takes; what is left holds blanks."""
MAX_FILE_BYTES: Final = 4 << 20
MOST_RUNS: Final = 1000
"""So many runs are looked through for the one that a process belongs to, newest first."""


def state_home() -> Path:
    """Where gpudiag keeps what outlives a command (XDG base directory specification 0.8)."""
    return config.directory("state", os.environ, Path.home())


def runs_home() -> Path:
    """The parent of the directories of all runs that were not told where to go."""
    return state_home() / "runs"


def new_run_id(engine: str) -> str:
    """'20261129-184152-vllm-4242': sorts by time, and two starts within a second differ."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{engine}-{os.getpid()}"


class RunDirectory:
    """Paths of one run, and the two files that are replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def server_log(self) -> Path:
        return self.path / SERVER_LOG

    @property
    def events_log(self) -> Path:
        return self.path / EVENTS_LOG

    @property
    def supervisor_log(self) -> Path:
        return self.path / SUPERVISOR_LOG

    @property
    def evidence(self) -> Path:
        return self.path / EVIDENCE

    def create(self, below: tuple[str, ...] = ()) -> None:
        """Make the directory for this user alone. Raises UsageError if it holds a run already or cannot be made."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            if (self.path / MANIFEST).exists():
                raise UsageError(f"{self.path} holds another run already", help="give a new directory: --record DIR")
            for name in (EVIDENCE, *below):
                (self.path / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot make the run directory {self.path}: {error.strerror}", help="name one that you can write: --record DIR"
            ) from error

    def write_manifest(self, manifest: RunManifest) -> None:
        replace_file(self.path / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))

    def write_progress(self, progress: RunProgress) -> None:
        """Replace it, or on a full disk write over it: it was made larger than it needs to be. Raises OSError."""
        data = msgspec.json.encode(progress)
        try:
            replace_file(self.path / PROGRESS, data.ljust(PROGRESS_BYTES))
        except OSError:
            if not _written_over(self.path / PROGRESS, data):
                raise

    def manifest(self) -> RunManifest | None:
        """None where there is none, or one of another version."""
        return _read(self.path / MANIFEST, RunManifest)

    def progress(self) -> RunProgress | None:
        return _read(self.path / PROGRESS, RunProgress)


def _written_over(path: Path, data: bytes) -> bool:
    """Whether the data took the place of what a file holds, which needs no room. A reader that sees it torn looks again."""
    try:
        with open(path, "r+b", buffering=0) as file:
            room = os.fstat(file.fileno()).st_size
            return len(data) <= room and file.write(data.ljust(room)) == room
    except OSError:
        return False


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return decode_json(bounded(path, MAX_FILE_BYTES), kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def runs(home: Path | None = None) -> Iterator[RunDirectory]:
    """The runs below `home` (None: where they go by default), newest first."""
    base = home or runs_home()
    try:
        names = sorted((e.name for e in os.scandir(base) if e.is_dir(follow_symlinks=False)), reverse=True)
    except OSError:
        return
    for name in names[:MOST_RUNS]:
        yield RunDirectory(base / name)


def run_of(pid: int, home: Path | None = None) -> tuple[RunDirectory, RunManifest] | None:
    """The newest run whose server has this root, as far as runs are in `home`."""
    for run in runs(home):
        manifest = run.manifest()
        if manifest is not None and pid in (manifest.server_pid, manifest.supervisor_pid):
            return run, manifest
    return None
