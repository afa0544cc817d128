"""The progress bar of a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpudiag.render.plain import clean

if TYPE_CHECKING:
    from rich.progress import TaskID


class Bar:
    """One bar on stderr, gone when it ends."""

    def __init__(self, what: str, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn(f"gpudiag: {what}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn(unit),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False, emoji=False),
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        self._task = self._progress.add_task("", total=None, note="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def show(self, event: dict[str, Any]) -> None:
        done, of = event.get("done"), event.get("of")
        if self._task is not None and isinstance(done, int) and isinstance(of, int):
            note = clean(str(event.get("note") or ""), limit=40)
            self._progress.update(self._task, completed=done, total=of, note=note)
