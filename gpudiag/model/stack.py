"""Python stacks, and what the source code at a frame says about locks and files."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Frame(Struct, frozen=True, kw_only=True):
    """One frame. `locals` maps a variable to the address of its object (never its value).

    `values` holds the few values that decide a wait: whole numbers, and strings that are paths which exist on the
    target's file system. Everything else stays in the target.
    """

    function: str
    file: str
    line: int
    native: bool = False
    locals: dict[str, int] = {}
    values: dict[str, str] = {}

    @property
    def where(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


class PyStack(Struct, frozen=True, kw_only=True):
    """The Python stack of one thread, innermost frame first.

    `ident` is threading.get_ident() (the pthread id), which RLocks record as their owner. `active` is py-spy's guess
    that the thread runs on a processor.
    """

    tid: int
    name: str | None
    ident: int
    active: bool
    owns_gil: bool
    frames: tuple[Frame, ...]


class LockUse(Struct, frozen=True, kw_only=True):
    """A lock that a frame holds or is blocked on, known by address.

    `lock` is the address of the Python lock object; `word` the address the kernel sees a waiter sleep on (semaphore
    of a threading.Lock up to CPython 3.13), None where waiters sleep elsewhere. `owner_ident` is the pthread id that an
    RLock records. `held` means: the frame stands inside `with lock:` or between acquire() and release() of it.
    `locked` is the lock's own state, None where it could not be read. `shared` names a lock that several processes have
    (multiprocessing): the same in each of them, while `lock` is the address of this process's own object for it.
    """

    tid: int
    frame: int
    """Index into PyStack.frames."""
    kind: Literal["lock", "rlock", "condition", "semaphore", "unknown"]
    held: bool
    by_with: bool = True
    """Held by `with`, which only its own thread leaves; else by acquire(), and another thread may have released it since."""
    lock: int
    expression: str
    word: int | None = None
    owner_ident: int | None = None
    locked: bool | None = None
    shared: str | None = None


class FilePoll(Struct, frozen=True, kw_only=True):
    """A frame that loops until a file appears, goes away (`while os.path.exists(path): sleep`) or can be locked."""

    tid: int
    frame: int
    path: str
    until: Literal["exists", "gone", "unlocked"]
    expression: str
