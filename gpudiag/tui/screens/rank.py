"""One process: its threads with their stacks, and what it holds: locks, files, sockets, environment."""

from __future__ import annotations

from typing import Final

from gpudiag.model.process import FileDescriptor, Process, Thread
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable, value_or
from gpudiag.model.snapshot import Snapshot
from gpudiag.model.stack import PyStack
from gpudiag.render.canvas import Canvas, cells, pad
from gpudiag.render.names import rank_name
from gpudiag.render.plain import clean, short_path
from gpudiag.render.style import BOLD, DIM, ORANGE, PINK, PLAIN, worker_look
from gpudiag.tui.places import place
from gpudiag.tui.secrets import shown_command, shown_variable
from gpudiag.tui.view import Drawn, View, nothing

MAX_FRAMES: Final = 60
MAX_FDS: Final = 200
POLLS: Final = {"exists": "exists", "gone": "is gone", "unlocked": "is unlocked"}
_FIRST_FRAMES: Final = 8
"""Frames of the main thread that are shown without asking."""


def draw(view: View) -> Drawn:
    """The process chosen, or the culprit's."""
    worker, looked = view.chosen, view.looked
    if worker is None or looked is None:
        return nothing(view, "no process was looked at: there is only what logs say, or the server is not there yet")
    process = looked.process(worker.pid)
    canvas = view.canvas()
    look = worker_look(worker.state)
    name = rank_name(worker.rank)
    canvas.row(
        (f"{'rank ' + name if name else worker.role}", BOLD),
        (f"  pid {worker.pid}  {worker.role}  ", PLAIN),
        (f"{look.mark(plain=view.plain)} {look.word}", look.color),
    )
    if process is None:
        canvas.row(("  the process is not there any more", PINK))
        return Drawn(rows=canvas.rows)
    _Process(process, looked, view, canvas).head()
    keys = _Threads(process, view, canvas).draw()
    holdings = _Process(process, looked, view, canvas)
    holdings.locks()
    holdings.files()
    holdings.sockets()
    holdings.environment()
    return Drawn(rows=canvas.rows, keys=keys)


class _Threads:
    """Threads with a Python stack first, the main one before all; opened, a thread shows all its frames."""

    def __init__(self, process: Process, view: View, canvas: Canvas) -> None:
        self._process = process
        self._view = view
        self._canvas = canvas

    def draw(self) -> dict[int, str]:
        process, canvas = self._process, self._canvas
        stacks = {s.tid: s for s in value_or(process.stacks, ())}
        threads = sorted(process.threads, key=lambda t: (t.tid != process.pid, t.tid not in stacks, t.tid))
        shown = [t for t in threads if self._view.filter.keeps(self._words(t, stacks.get(t.tid)))]
        section(canvas, f"threads ({len(threads)})")
        why_not(canvas, "stacks", process.stacks)
        keys = {}
        for thread in shown:
            keys[len(canvas.rows)] = f"tid:{thread.tid}"
            self._thread(thread, stacks.get(thread.tid))
        return keys

    def _words(self, thread: Thread, stack: PyStack | None) -> str:
        return " ".join((str(thread.tid), thread.name, *(f.where for f in (stack.frames if stack else ()))))

    def _thread(self, thread: Thread, stack: PyStack | None) -> None:
        canvas = self._canvas
        main = "main" if thread.tid == self._process.pid else clean((stack.name if stack else None) or thread.name)
        call = value_or(self._process.syscalls, {}).get(thread.tid)
        doing = call.name if call else thread.wchan or ""
        head = f"  {thread.tid:>8}  {pad(canvas.fit(main, 18), 18)}  {thread.state}  {pad(canvas.fit(clean(doing), 14), 14)}  "
        room = max(8, canvas.width - cells(head))
        where = place(stack.frames[0], canvas, room) if stack and stack.frames else ""
        canvas.row((head, PLAIN), (where, PLAIN if stack else DIM))
        if stack is None:
            return
        if stack.owns_gil:
            canvas.row((f"{' ' * 12}holds the interpreter lock", ORANGE))
        opened = f"tid:{thread.tid}" in self._view.opened
        first = thread.tid == self._process.pid
        count = MAX_FRAMES if opened else _FIRST_FRAMES if first else 1
        for frame in stack.frames[1:count]:
            bar = f"{' ' * 12}{canvas.lines.quote}"
            canvas.row((bar, DIM), (place(frame, canvas, canvas.width - cells(bar)), DIM if frame.native else PLAIN))
        hidden = len(stack.frames) - count
        if hidden > 0 and count > 1:
            canvas.row((f"{' ' * 12}{canvas.lines.ellipsis} {hidden} more frames (enter)", DIM))


class _Process:
    def __init__(self, process: Process, snapshot: Snapshot, view: View, canvas: Canvas) -> None:
        self._process = process
        self._snapshot = snapshot
        self._view = view
        self._canvas = canvas

    def _path(self, path: str, room: int) -> str:
        return short_path(clean(path), max(12, room), ellipsis=self._canvas.lines.ellipsis)

    def head(self) -> None:
        process, canvas = self._process, self._canvas
        canvas.row(("  command ", DIM), (canvas.fit(shown_command(process), canvas.width - 10), PLAIN))
        measure = self._view.frame.measures.get(process.pid)
        facts = [f"state {process.state}", f"memory {process.rss_bytes / 1e6:.0f} MB", f"{len(process.threads)} threads"]
        if measure is not None:
            facts += [f"cpu {measure.cpu_percent:.0f} %"] if measure.cpu_percent is not None else []
            facts += [f"gpu {measure.gpu}"] if measure.gpu is not None else []
            facts += [f"{measure.power_w:.0f} W"] if measure.power_w is not None else []
            facts += [f"python {clean(process.python_version)}"] if process.python_version else []
        canvas.row(("  now     ", DIM), (canvas.fit("  ".join(facts), canvas.width - 10), PLAIN))

    def locks(self) -> None:
        process, canvas = self._process, self._canvas
        section(canvas, "locks")
        why_not(canvas, "locks", process.lock_uses)
        uses, polls = value_or(process.lock_uses, ()), value_or(process.file_polls, ())
        for use in uses:
            head = f"  {use.tid:>8}  {'holds' if use.held else 'waits for':<9} {use.kind} {use.lock:#x}  "
            canvas.row((head, PLAIN), (canvas.fit(clean(use.expression), max(8, canvas.width - cells(head))), PLAIN))
        for poll in polls:
            head = f"  {poll.tid:>8}  waits until it {POLLS[poll.until]}: "
            canvas.row((head, PLAIN), (self._path(poll.path, canvas.width - cells(head)), PLAIN))
        held = [lock for lock in value_or(self._snapshot.file_locks, ()) if process.pid in (lock.pid, *lock.holders)]
        for lock in held:
            head = f"{'':>12}{'waits for' if lock.blocked else 'holds':<9} {lock.kind} {clean(lock.mode)} "
            what = lock.path or f"inode {lock.inode}"
            canvas.row((head, PLAIN), (self._path(what, canvas.width - cells(head)), PLAIN))
        if isinstance(process.lock_uses, Ok) and not (uses or polls or held):
            canvas.row(("  none", DIM))

    def files(self) -> None:
        process, canvas = self._process, self._canvas
        fds = [fd for fd in value_or(process.fds, ()) if fd.kind != "socket" and self._view.filter.keeps(fd.target)]
        section(canvas, f"files ({len(fds)})")
        why_not(canvas, "files", process.fds)
        for fd in fds[:MAX_FDS]:
            target = self._path(fd.target, canvas.width - 24)
            canvas.row((f"  {fd.fd:>8}  {_rights(fd)}  {fd.kind:<7} ", PLAIN), (target, PLAIN))
        if len(fds) > MAX_FDS:
            canvas.row((f"  {canvas.lines.ellipsis} {len(fds) - MAX_FDS} more", DIM))

    def sockets(self) -> None:
        process, canvas = self._process, self._canvas
        known = {s.inode: s for s in value_or(self._snapshot.sockets, ())}
        fds = [fd for fd in value_or(process.fds, ()) if fd.kind == "socket"]
        section(canvas, f"sockets ({len(fds)})")
        why_not(canvas, "sockets", self._snapshot.sockets)
        for fd in fds[:MAX_FDS]:
            socket = known.get(fd.inode or -1)
            if socket is None:
                canvas.row((f"  {fd.fd:>8}  {clean(fd.target)}", DIM))
                continue
            queues = f"{socket.receive_queue_bytes} B in, {socket.send_queue_bytes} B out"
            ends = f"{clean(socket.local)} {canvas.lines.arrow} {clean(socket.remote)}" if socket.remote else clean(socket.local)
            head = f"  {fd.fd:>8}  {socket.family:<4}  {socket.state:<11}  "
            canvas.row((head, PLAIN), (canvas.fit(f"{ends}  {queues}", canvas.width - cells(head)), PLAIN))

    def environment(self) -> None:
        process, canvas = self._process, self._canvas
        opened = "environment" in self._view.opened
        variables = value_or(process.environ, {})
        section(canvas, f"environment ({len(variables)})" if opened else f"environment ({len(variables)}, e shows it)")
        if not opened:
            return
        why_not(canvas, "environment", process.environ)
        for name, value in sorted(variables.items()):
            head = f"  {clean(name)}="
            canvas.row((head, DIM), (canvas.fit(shown_variable(name, value), max(10, canvas.width - cells(head))), PLAIN))


def section(canvas: Canvas, title: str) -> None:
    canvas.row((title, DIM))


def why_not(canvas: Canvas, what: str, reading: object) -> None:
    """Why something could not be read, and what would change that."""
    if reading == NOT_ASKED:
        canvas.row((f"  {what}: not asked for", DIM))
    elif isinstance(reading, Unavailable):
        canvas.paragraph([("  ", PLAIN)], f"{what}: {clean(reading.reason)}", PINK)
        if reading.help:
            canvas.paragraph([(f"    {canvas.lines.arrow} ", DIM)], clean(reading.help))
    elif isinstance(reading, Failed):
        canvas.paragraph([("  ", PLAIN)], f"{what}: {clean(reading.error)}", PINK)


def _rights(fd: FileDescriptor) -> str:
    return ("r" if fd.readable else "-") + ("w" if fd.writable else "-")
