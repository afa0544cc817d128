"""Ends a server: asks, waits, kills, and leaves no process behind."""

from __future__ import annotations

import signal
import time
from typing import Final

from gpudiag.launch.tree import Tree, send

REST_S: Final = 5.0
"""So long processes may take that their root left behind, once they are told to end."""
KILLED_S: Final = 10.0
"""After SIGKILL only a process in uninterruptible sleep is still there; nobody can end that one."""


class Ending:
    """Three stages: the root is asked, what is left is told, the rest is killed. `step` goes on to the next when it is due."""

    def __init__(self, tree: Tree, *, polite_s: float) -> None:
        self._tree = tree
        self._polite_s = polite_s
        self._due: float | None = None
        self._killed_at: float | None = None
        self._told_rest = False

    @property
    def begun(self) -> bool:
        return self._due is not None

    @property
    def over(self) -> bool:
        """Whether nothing is left to be ended, or nothing that could be."""
        if not self._tree.alive:
            return True
        return self._killed_at is not None and time.monotonic() - self._killed_at > KILLED_S

    def ask(self, number: signal.Signals) -> None:
        """Pass a signal on to the root; when it comes a second time, the patience is over."""
        if self.begun:
            self._kill()
            return
        self._due = time.monotonic() + self._polite_s
        send([t for t in self._tree.alive if t.pid == self._tree.root], number)
        self._continue()

    def end_rest(self) -> None:
        """The root has ended: what it left is told to end too, then killed."""
        if not self._told_rest and self._killed_at is None:
            self._told_rest = True
            self._due = time.monotonic() + REST_S
            send(self._tree.alive, signal.SIGTERM)
            self._continue()

    def step(self) -> None:
        """To be called often, after the tree was looked at."""
        if self._killed_at is not None:
            # A fork between two looks gets its signal at the next one.
            send(self._tree.alive, signal.SIGKILL)
        elif self._due is not None and time.monotonic() > self._due and self._tree.alive:
            self._kill()

    def _continue(self) -> None:
        """A stopped process takes no signal but SIGKILL, and its siblings wait for it; continued, it ends like the others."""
        send([t for t in self._tree.alive if t.stopped], signal.SIGCONT)

    def _kill(self) -> None:
        if self._killed_at is None:
            self._killed_at = time.monotonic()
        send(self._tree.alive, signal.SIGKILL)
