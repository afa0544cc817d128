"""From what was read to the frame that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from gpudiag.errors import NoTargetError
from gpudiag.model.log import LogFacts, ServerLog
from gpudiag.model.report import Report
from gpudiag.model.snapshot import Observation, Snapshot
from gpudiag.render.safe import safe
from gpudiag.session import pipeline
from gpudiag.tui.frame import Details, Frame, Run, pack, unpack
from gpudiag.tui.measures import measures_of, points_of

_LONG: Final = 3
"""Looks of an observation that reaches back further than its last two."""


def frame_of(
    observation: Observation, *, number: int, command: str, logs: Sequence[ServerLog] = (), run: Run | None = None
) -> Frame:
    """Judge an observation. Raises NoTargetError if no server is left in it."""
    reports = pipeline.reports_of(observation, command=command, wall_s=observation.last.took_s, logs=logs)
    return _frame(observation, reports, number=number, logs=logs, run=run)


def frame_of_watch(observation: Observation, *, number: int, logs: Sequence[ServerLog] = (), run: Run | None = None) -> Frame:
    """The frame of a watched server: what is proven by the last two looks does not wait until older ones are forgotten.

    A rank that was stopped a second ago still moved five seconds ago, and so did those that now wait for it.
    """
    frame = frame_of(observation, number=number, command="attach", logs=logs, run=run)
    if len(observation.snapshots) < _LONG or any(_is_error(r) for r in frame.reports):
        return frame
    late = frame_of(Observation(snapshots=observation.snapshots[-2:]), number=number, command="attach", logs=logs, run=run)
    return late if any(_is_error(r) and r.verdict.confidence == "proven" for r in late.reports) else frame


def frame_with(native: Snapshot, frame: Frame) -> Frame:
    """The frame again, with the C frames of a look of its own, and with what that look cost."""
    details = replace(unpack(frame.packed), native=native)

    def told(report: Report) -> Report:
        return replace(report, cost=replace(report.cost, stopped_s=round(native.stopped_s, 4)))

    return replace(
        frame,
        number=frame.number + 1,
        at=native.at,
        native=True,
        reports=tuple(map(told, frame.reports)),
        packed=pack(replace(details, reports=tuple(map(told, details.reports)))),
    )


def _is_error(report: Report) -> bool:
    return report.verdict.status == "finding" and report.verdict.severity == "error"


def frames_of_recording(observation: Observation, logs: Sequence[ServerLog]) -> list[Frame]:
    """One frame for each look of a recording; the last judges all of them. Looks that judge nothing are left out."""
    frames: list[Frame] = []
    for count in range(1, len(observation.snapshots) + 1):
        looks = Observation(snapshots=observation.snapshots[:count])
        last = count == len(observation.snapshots)
        try:
            frames.append(frame_of(looks, number=count, command="explain", logs=logs if last else ()))
        except NoTargetError:
            if last:
                raise
    return frames


def frame_of_run(run: Run, *, number: int, report: Report | None = None, logs: Sequence[ServerLog] = ()) -> Frame:
    """A moment of a start in which no process can be looked at: not yet, or not any more. `report` says how it ended."""
    return Frame(
        number=number,
        at=run.progress.at if run.progress else run.manifest.started_at,
        reports=(safe(report),) if report is not None else (),
        run=run,
        packed=pack(Details(reports=(report,) if report is not None else (), logs=tuple(logs))),
    )


def frame_of_reports(reports: Sequence[Report], *, at: float, facts: LogFacts | None = None) -> Frame:
    """What only logs say."""
    logs = (ServerLog(root_pid=0, facts=facts),) if facts is not None else ()
    details = Details(reports=tuple(reports), logs=logs)
    return Frame(number=1, at=at, reports=tuple(map(safe, reports)), packed=pack(details))


def _frame(
    observation: Observation, reports: Sequence[Report], *, number: int, logs: Sequence[ServerLog], run: Run | None
) -> Frame:
    return Frame(
        number=number,
        at=observation.last.at,
        reports=tuple(safe(r) for r in reports),
        measures=measures_of(observation, reports),
        gpus=points_of(observation),
        run=run,
        took_s=observation.last.took_s,
        packed=pack(Details(observation=observation, reports=tuple(reports), logs=tuple(logs))),
    )
