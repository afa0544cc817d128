"""Who stands where: main threads with the same stack together, the fewest first, since the odd one is the one to look at."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from gpudiag.model.report import Worker
from gpudiag.model.snapshot import Snapshot
from gpudiag.model.stack import Frame
from gpudiag.render.canvas import Canvas
from gpudiag.render.names import Names, ranges, rank_name, rank_number
from gpudiag.render.style import BOLD, DIM, PLAIN, SEVERITIES, VERMILION
from gpudiag.tui.places import place
from gpudiag.tui.view import Drawn, View, nothing

MAX_FRAMES: Final = 40
_FEW: Final = 4
_FIRST: Final = 8
"""Frames of each group that are shown if there are more than a few groups."""

Signature = tuple[tuple[str, str, int], ...]


class Alike(Struct, frozen=True, kw_only=True):
    """Workers of one role whose main threads have the same frames."""

    workers: tuple[Worker, ...]
    frames: tuple[Frame, ...]
    role: str


def alike(looked: Snapshot, workers: Sequence[Worker], blamed: AbstractSet[int | None] = frozenset()) -> list[Alike]:
    """Ranks before other processes; of them those with a blamed pid first, then the smallest. Without a stack: left out."""
    groups: dict[tuple[str, Signature], list[tuple[Worker, tuple[Frame, ...]]]] = {}
    for worker in workers:
        process = looked.process(worker.pid)
        stack = process.stack_of(worker.pid) if process is not None else None
        if stack is not None:
            signature = tuple((f.function, f.file, f.line) for f in stack.frames)
            groups.setdefault((worker.role, signature), []).append((worker, stack.frames))
    found = [
        Alike(workers=tuple(w for w, _ in members), frames=members[0][1], role=role) for (role, _), members in groups.items()
    ]

    def order(group: Alike) -> tuple[bool, bool, int]:
        return rank_number(group.workers[0].rank) is None, blamed.isdisjoint(w.pid for w in group.workers), len(group.workers)

    return sorted(found, key=order)


def draw(view: View) -> Drawn:
    """Each group with its frames, innermost first; what all groups of a role share at their outer end is told once."""
    looked, report = view.looked, view.report
    canvas = view.canvas()
    if looked is None or report is None:
        return nothing(view, "no stacks: no process was looked at")
    names = Names(report, ellipsis=canvas.lines.ellipsis)
    groups = alike(looked, view.workers, view.blamed)
    if not groups:
        return nothing(view, "no stacks could be read", *(f"{n.source}: {n.reason} {n.help}" for n in report.not_read[:4]))
    keys: dict[int, str] = {}
    for group in groups:
        if not view.filter.keeps(" ".join((_who(group, names), *(f.where for f in group.frames)))):
            continue
        if canvas.rows:
            canvas.blank()
        keys[len(canvas.rows)] = str(group.workers[0].pid)
        _head(group, groups, view, names, canvas)
        _frames(group, groups, canvas)
    return Drawn(rows=canvas.rows, keys=keys)


def _head(group: Alike, groups: Sequence[Alike], view: View, names: Names, canvas: Canvas) -> None:
    guilty = any(w.pid in view.blamed for w in group.workers)
    look = SEVERITIES["error"]
    of_role = sum(len(g.workers) for g in groups if g.role == group.role)
    total = f"  {len(group.workers)} of {of_role}" if of_role > 1 else ""
    mark = look.mark(plain=view.plain) if guilty else " "
    who = canvas.fit(_who(group, names), canvas.width - 20)
    canvas.row((f" {mark} ", look.color), (who, f"bold {VERMILION}" if guilty else BOLD), (total, DIM))


def _frames(group: Alike, groups: Sequence[Alike], canvas: Canvas) -> None:
    shared = _shared(group, groups)
    own = list(group.frames[: len(group.frames) - shared]) or list(group.frames[:1])
    count = MAX_FRAMES if len(groups) <= _FEW else _FIRST
    for frame in own[:count]:
        canvas.row(("     ", PLAIN), (place(frame, canvas, canvas.width - 5), DIM if frame.native else PLAIN))
    if len(own) > count:
        canvas.row((f"     {canvas.lines.ellipsis} {len(own) - count} more frames (enter)", DIM))
    if (outer := len(group.frames) - len(own)) > 0:
        canvas.row((f"     {canvas.lines.ellipsis} and the {outer} outermost, as in the other {group.role}s", DIM))


def _who(group: Alike, names: Names) -> str:
    numbers = [n for w in group.workers if (n := rank_number(w.rank)) is not None]
    if numbers:
        return f"{'ranks' if len(numbers) > 1 else 'rank'} {ranges(numbers)}"
    named = [rank_name(w.rank) for w in group.workers if rank_name(w.rank)]
    return ", ".join(named) if named else names.many([f"pid:{w.pid}" for w in group.workers])


def _shared(group: Alike, groups: Sequence[Alike]) -> int:
    """Outermost frames that this group has in common with every other of its role; 0 if it is alone."""
    others = [g for g in groups if g.role == group.role and g is not group]
    if not others:
        return 0
    return min(_common(group.frames, other.frames) for other in others)


def _common(one: Sequence[Frame], other: Sequence[Frame]) -> int:
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if (a.function, a.file, a.line) != (b.function, b.file, b.line):
            break
        count += 1
    return count
