"""Draws who waits for whom: a circle of culprits if they wait for each other, and below the culprits all who wait for them."""

from __future__ import annotations

from collections.abc import Sequence

from gpudiag.model import node
from gpudiag.render.canvas import Canvas, Segment, cells
from gpudiag.render.names import Names, where_parts
from gpudiag.render.plain import short_path
from gpudiag.render.style import BOLD, DIM, PLAIN
from gpudiag.render.tree import Branch

_HOW: dict[str, str] = {
    "collective": "in a collective",
    "p2p": "for a message",
    "lock": "for a lock",
    "gil": "for the interpreter lock",
    "file-lock": "for a file lock",
    "ipc": "for an answer",
    "socket": "for an answer",
    "store": "in the rendezvous",
    "child": "for its end",
    "device-sync": "for the device",
    "gpu-kernel": "for a kernel",
    "io": "for data",
}

Rows = list[list[Segment]]


def draw_forest(branches: Sequence[Branch], names: Names, canvas: Canvas) -> Rows:
    """Rows to put on the canvas; none if nobody waits for anybody."""
    if not any(b.children or b.waits_for or b.next is not None for b in branches):
        return []
    drawing = _Drawing(names, canvas)
    if any(b.next is not None for b in branches):
        drawing.circle(branches)
    else:
        for branch in branches:
            drawing.root(branch)
    return drawing.rows


class _Drawing:
    def __init__(self, names: Names, canvas: Canvas) -> None:
        self.rows: Rows = []
        self._names = names
        self._canvas = canvas
        self._lines = canvas.lines
        self._threads: set[int | None] = set()

    def root(self, branch: Branch) -> None:
        self._node("  ", self._name(branch), branch.where)
        bar = self._lines.bar if branch.children else "   "
        for target in branch.waits_for:
            path = node.path_of(target)
            words = short_path(path, 44, ellipsis=self._lines.ellipsis) if path else self._names.one(target)
            self.rows.append(
                [(f"  {bar}", DIM), ("waits for ", PLAIN), (self._canvas.fit(words, self._canvas.width - 18), PLAIN)]
            )
        self._children(branch.children, "  ", "")

    def circle(self, branches: Sequence[Branch]) -> None:
        """The culprits one below the other, each waiting for the next, with a bar on the left that closes the circle."""
        self._threads = {node.pid_of(n) for b in branches for n in b.nodes if node.tid_of(n) is not None}
        for number, branch in enumerate(branches):
            first, last = number == 0, number == len(branches) - 1
            head = self._lines.ring_start if first else self._lines.ring_end if last else self._lines.bar
            self._node(f"  {head}", self._name(branch), branch.where)
            if branch.next is None:
                continue
            whom = "" if branch.next == number + 1 else f" for {self._name(branches[branch.next])}"
            verb = "wait" if len(branch.nodes) > 1 else "waits"
            how = _HOW.get(branch.next_kind, "")
            arrow = self._lines.up if branch.next <= number else self._lines.down
            bar = "   " if last else self._lines.bar
            self.rows.append([(f"  {bar}{arrow} ", DIM), (f"{verb}{whom} {how}".rstrip(), DIM)])
        for branch in branches:
            self._children(branch.children, "  ", f" for {self._name(branch)}")

    def _name(self, branch: Branch) -> str:
        """A main thread is named as one if other threads of its process stand beside it."""
        name = self._names.many(branch.nodes)
        first = branch.nodes[0]
        beside = len(branch.nodes) == 1 and node.tid_of(first) is None and node.pid_of(first) in self._threads
        return f"{name} main thread" if beside else name

    def _children(self, children: Sequence[Branch], prefix: str, whom: str) -> None:
        for number, child in enumerate(children):
            last = number == len(children) - 1
            verb = "wait" if len(child.nodes) > 1 else "waits"
            told = f"{self._names.many(child.nodes)}  {verb}{whom} {_HOW.get(child.kind or '', '')}".rstrip()
            head = prefix + (self._lines.corner if last else self._lines.tee)
            self._node(head, told, child.where, ": ", PLAIN)
            self._children(child.children, prefix + ("   " if last else self._lines.bar), "")

    def _node(self, head: str, told: str, where: str, before: str = "  ", style: str = BOLD) -> None:
        told = self._canvas.fit(told, self._canvas.width - cells(head))
        self.rows.append([(head, DIM), (told, style), (self._place(before, where, cells(head) + cells(told)), PLAIN)])

    def _place(self, before: str, where: str, used: int) -> str:
        """'function (file.py:12)' if it fits, else the function, else nothing: half a name helps nobody."""
        if not where:
            return ""
        function, file, line = where_parts(where)
        room = self._canvas.width - used - len(before)
        short = f"{function} ({file.rsplit('/', 1)[-1]}:{line})" if file else function
        if cells(short) <= room:
            return before + short
        return before + function if cells(function) <= room else ""
