"""What to explain of a run directory: the look that its verdict rests on, and the logs beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from gpudiag.doctor.reads import bounded
from gpudiag.launch.run_directory import ARMED, KERNEL_LOG, RECORDING, REPORT_JSON, RunDirectory
from gpudiag.model.decoding import decode_json
from gpudiag.model.report import Report
from gpudiag.model.run import ENDED

_MOST_BYTES: Final = 64 << 20


class Kept(Struct, frozen=True, kw_only=True):
    """`recording` None: no process was looked at, or none of the looks belongs to the end. `others` counts the other looks."""

    recording: Path | None
    logs: tuple[Path, ...]
    others: int = 0


def kept_of(directory: Path) -> Kept | None:
    """None where there is no run.

    A run has a recording for each time that its supervisor looked, most of them of a server that went on. The one that counts
    is the last one up to its last report; of a server that has ended only if that look found an error, as what is told of a
    crash may have come hours after it.
    """
    run = RunDirectory(directory)
    if run.manifest() is None:
        return None
    progress = run.progress()
    looks = sorted(p.parent for p in run.evidence.glob(f"*/{RECORDING}"))
    last = None if progress is None or progress.report is None else Path(progress.report).parent.name
    before = [folder for folder in looks if last is None or folder.name <= last]
    chosen = before[-1] if before else None
    if chosen is not None and progress is not None and progress.state in ENDED and not _found_an_error(chosen):
        chosen = None
    beside = chosen or (run.evidence / last if last is not None else None)
    names = [run.server_log, run.events_log, *(run.path / name for name in ARMED)]
    names += [beside / KERNEL_LOG] if beside is not None else []
    return Kept(
        recording=chosen / RECORDING if chosen is not None else None,
        logs=tuple(path for path in names if path.exists()),
        others=len(looks) - (chosen is not None),
    )


def _found_an_error(folder: Path) -> bool:
    try:
        verdict = decode_json(bounded(folder / REPORT_JSON, _MOST_BYTES), Report).verdict
    except (OSError, msgspec.MsgspecError):
        return False
    return verdict.status == "finding" and verdict.severity == "error"
