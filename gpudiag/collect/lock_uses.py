"""Which Python lock each blocked thread waits for and which locks the frames of each thread hold, by address.

Source code says which expression is a lock, the target's memory which object that is, so the same line on two instances
is two locks. A thread counts as blocked only if the kernel shows it asleep on the very word of the lock (where that can
be read), and a lock counts as held only if it is taken and, where it records its owner, owned by that thread. What
cannot be resolved is left out: absence means unknown.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpudiag.collect import procfs
from gpudiag.collect.expressions import Expressions, Place
from gpudiag.collect.lock_expressions import LockExpressions
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.pylock import PyLock, asleep_on, lock_behind
from gpudiag.collect.pyobject import PyObjects
from gpudiag.collect.python_target import supported_layout
from gpudiag.collect.shared_mappings import SharedMappings
from gpudiag.collect.source import Function, Unreadable
from gpudiag.collect.source_files import SourceFiles
from gpudiag.collect.syntax_locks import Acquire, Taken, acquire_at, held_at
from gpudiag.model.stack import Frame, LockUse, PyStack

_STANDARD_LIBRARY: Final = re.compile(r"/lib/python3\.\d+/(?!(?:site|dist)-packages/)")
_HOLDERS: Final = re.compile(
    r"/lib/python3\.\d+/(?:(?:queue|subprocess|tempfile|functools|socketserver|_pydecimal)\.py"
    r"|(?:logging|multiprocessing|concurrent/futures|importlib)/\w+\.py)$"
)
"""Standard library files whose functions hold a lock while they call something that can block."""

_NO_LOCK: Final = frozenset({"Thread.join", "Thread._wait_for_tstate_lock", "Thread._stop", "_shutdown"})
"""Functions of threading.py that wait for the end of a thread, up to CPython 3.12 on a lock that stands for it."""

_WORDS: Final = ("with ", "with(", "acquire", "__enter__")
"""One of these is in every function that takes a lock."""

_QUEUE_READS: Final = frozenset({"Queue.get", "SimpleQueue.get"})
"""Functions of multiprocessing/queues.py in which idle workers take turns: one reads the pipe, the others wait for its lock."""

_FUTEX: Final = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine)


def lock_uses(pid: int, python_version: str | None, stacks: tuple[PyStack, ...], memory: TargetMemory) -> tuple[LockUse, ...]:
    """The locks that threads are blocked on (`held=False`) and those that their frames hold (`held=True`).

    `kind` is what the program uses: 'condition' for the lock of a threading.Condition. Waiting for a notification, an
    Event, a Queue item or the end of a thread is no lock wait and gives nothing; a thread in Condition.wait() does not
    hold the condition's lock. A use of a threading.Semaphore has the address of the Semaphore; where no frame holds one,
    it may be a signal rather than a lock, and waiting for it gives nothing.

    Raises UnsupportedPythonError for a version whose objects gpudiag cannot read, OSError if the target is gone.
    """
    look = _Look(pid, stacks, memory, PyObjects(memory, supported_layout(python_version)))
    found = [use for stack in stacks for use in look.uses(stack)]
    memory.require_alive()
    held = {use.lock for use in found if use.held}
    return tuple(use for use in found if use.kind != "semaphore" or use.lock in held)


@dataclass(frozen=True, slots=True)
class _Blocked:
    """Where a thread is blocked: the frame, the acquisition in its source, and the lock."""

    place: Place
    acquire: Acquire
    lock: PyLock


@dataclass(frozen=True, slots=True)
class _Line:
    """What the source says about a line of a function; the same for every thread that stands there."""

    function: Function
    held: tuple[Taken, ...]
    acquires: tuple[Acquire, ...]


class _Look:
    def __init__(self, pid: int, stacks: tuple[PyStack, ...], memory: TargetMemory, objects: PyObjects) -> None:
        self._pid = pid
        self._memory = memory
        self._objects = objects
        self._sources = SourceFiles(pid)
        self._locks = LockExpressions(Expressions(objects, stacks), self._sources, memory)
        self._mappings = SharedMappings(pid)
        self._lines: dict[tuple[str, str, int], _Line | None] = {}

    def uses(self, stack: PyStack) -> Iterator[LockUse]:
        """The uses of one thread, innermost frame first."""
        blocked = self._blocked(stack)
        if blocked is not None:
            yield self._use(blocked.place, blocked.acquire.lock, blocked.lock, held=False)
        given_back = self._given_back(stack)
        for index in range(len(stack.frames)):
            seen: set[int] = set(given_back)
            for place, taken, lock in self._held(stack, index, blocked):
                if lock.address not in seen and _may_hold(lock, stack) and not _is_wanted(blocked, index, taken, lock):
                    seen.add(lock.address)
                    yield self._use(place, taken.lock, lock, held=True, by_with=taken.by_with)

    def _held(self, stack: PyStack, index: int, blocked: _Blocked | None) -> Iterator[tuple[Place, Taken, PyLock]]:
        """The locks that the source of a frame says it holds, and how it took them."""
        frame = stack.frames[index]
        if _STANDARD_LIBRARY.search(frame.file) and not _HOLDERS.search(frame.file):
            return
        line = self._line(frame)
        if line is None:
            return
        place = Place(stack, index, line.function)
        entered = blocked.acquire.entered if blocked is not None and blocked.place.index == index else ()
        for taken in (*line.held, *(Taken(lock, by_with=True) for lock in entered)):
            yield from ((place, taken, lock) for lock in self._locks.behind(taken, place))

    def _blocked(self, stack: PyStack) -> _Blocked | None:
        if not stack.frames:
            return None
        word = self._asleep_on(stack.tid)
        if word == 0:
            return None
        first = stack.frames[0]
        if _is_threading(first):
            if first.function in _NO_LOCK:
                return None
            semaphore = self._semaphore(stack)
            if semaphore is not None:
                return semaphore
        found = self._acquired(stack, 0, word)
        if found is None:
            return None
        lifted = self._lifted(stack, found, word)
        return None if _is_queue_read(lifted.place.frame) else lifted

    def _acquired(self, stack: PyStack, index: int, word: int | None) -> _Blocked | None:
        """The acquisition that a frame is in: the one whose word the thread sleeps on, else the first lock that is taken."""
        line = self._line(stack.frames[index])
        if line is None:
            return None
        place = Place(stack, index, line.function)
        candidates = [
            _Blocked(place, acquire, lock)
            for acquire in line.acquires
            if not _is_notification(place.frame, acquire) and (lock := self._locks.plain(acquire.lock, place)) is not None
        ]
        if word is not None:
            return next((c for c in candidates if asleep_on(self._memory, c.lock, word)), None)
        waiting = [c for c in candidates if c.lock.locked is not False and c.lock.owner_ident != stack.ident]
        # Of several taken locks in one line nobody can tell which are this thread's own.
        return waiting[0] if len(waiting) == 1 else None

    def _lifted(self, stack: PyStack, found: _Blocked, word: int | None) -> _Blocked:
        """The same acquisition in the caller, if the frame only passes it on (Condition.__enter__, Handler.acquire)."""
        index = found.place.index
        if not _STANDARD_LIBRARY.search(found.place.frame.file) or index + 1 >= len(stack.frames):
            return found
        outer = self._acquired(stack, index + 1, word)
        if outer is None or outer.lock.address != found.lock.address:
            return found
        return self._lifted(stack, outer, word)

    def _semaphore(self, stack: PyStack) -> _Blocked | None:
        """A thread in Semaphore.acquire() that waits to be let in: a lock wait with a condition inside."""
        if len(stack.frames) < 3 or stack.frames[0].function != "Condition.wait" or not _is_threading(stack.frames[1]):
            return None
        if stack.frames[1].function != "Semaphore.acquire":
            return None
        address = stack.frames[1].locals.get("self")
        line = self._line(stack.frames[2])
        if address is None or line is None:
            return None
        place = Place(stack, 2, line.function)
        for acquire in line.acquires:
            lock = self._locks.plain(acquire.lock, place)
            if lock is not None and lock.address == address:
                return _Blocked(place, acquire, lock)
        return None

    def _given_back(self, stack: PyStack) -> frozenset[int]:
        """Locks of the conditions that the thread waits on: wait() releases them, however often they were acquired."""
        waits = [
            f.locals["self"] for f in stack.frames if _is_threading(f) and f.function == "Condition.wait" and "self" in f.locals
        ]
        locks = [lock_behind(self._objects, self._memory, address) for address in waits]
        return frozenset(lock.address for lock in locks if lock)

    def _line(self, frame: Frame) -> _Line | None:
        """What the source says about the line a frame is at; None without source or without a lock in it."""
        key = frame.file, frame.function, frame.line
        if key not in self._lines:
            self._lines[key] = self._read_line(*key)
        return self._lines[key]

    def _read_line(self, file: str, qualname: str, line: int) -> _Line | None:
        function = self._sources.function(file, qualname, line, _WORDS)
        if isinstance(function, Unreadable):
            return None
        return _line_of(function, line)

    def _use(self, place: Place, expression: ast.expr, lock: PyLock, *, held: bool, by_with: bool = True) -> LockUse:
        return LockUse(
            tid=place.stack.tid,
            frame=place.index,
            kind=lock.kind,
            held=held,
            by_with=by_with,
            lock=lock.address,
            expression=ast.unparse(expression),
            word=lock.word,
            owner_ident=lock.owner_ident,
            locked=lock.locked,
            shared=self._mappings.name(lock.word) if lock.across and lock.word else None,
        )

    def _asleep_on(self, tid: int) -> int | None:
        """The futex word that a thread sleeps on, 0 if it does anything else, None if that cannot be read."""
        if _FUTEX is None:
            return None
        try:
            call, *arguments = procfs.read_once(f"/proc/{self._pid}/task/{tid}/syscall", 512).split()
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            return None
        return int(arguments[0], 16) if call == b"%d" % _FUTEX else 0


@lru_cache(maxsize=512)
def _line_of(function: Function, line: int) -> _Line | None:
    """Kept from one process to the next: the sixty idle workers of a compile pool stand at the same few lines."""
    try:
        return _Line(function, held_at(function.node, line), acquire_at(function.node, line))
    except RecursionError:
        # Only a source made for it is nested that deeply.
        return None


def _is_threading(frame: Frame) -> bool:
    return frame.file.endswith("/threading.py") and _STANDARD_LIBRARY.search(frame.file) is not None


def _is_queue_read(frame: Frame) -> bool:
    return frame.function in _QUEUE_READS and frame.file.endswith("/multiprocessing/queues.py")


def _is_notification(frame: Frame, acquire: Acquire) -> bool:
    """Condition.wait blocks on a lock made for this one wait: what it waits for is a notification."""
    return frame.function == "Condition.wait" and isinstance(acquire.lock, ast.Name) and acquire.lock.id == "waiter"


def _is_wanted(blocked: _Blocked | None, index: int, taken: Taken, lock: PyLock) -> bool:
    """Whether the text calls a lock held that this very thread waits for.

    `with lock: x += 1` on one line reads as both, and a plain lock that a thread has acquired may be released by another
    one, so that waiting for it a second time is a turn-taking and no deadlock. Only an outer `with` is left.
    """
    if blocked is None or lock.address != blocked.lock.address:
        return False
    return index == blocked.place.index or not taken.by_with


def _may_hold(lock: PyLock, stack: PyStack) -> bool:
    if lock.kind == "semaphore":
        return True
    return lock.locked is not False and (lock.owner_ident is None or lock.owner_ident == stack.ident)
