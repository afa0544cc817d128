"""Orders evidence: what to look at first, once more where the first look was not sure, and under which number it is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

from gpudiag.launch.evidence import Ask, Told, Why
from gpudiag.launch.taker import TakerProcess
from gpudiag.model.run import LaunchPlan

_URGENCY: Final[tuple[Why, ...]] = ("process-died", "process-stopped", "unanswered", "quiet", "silent", "ready", "ended")
_SURE: Final = frozenset({"process-died", "process-stopped"})
"""What shows in two looks a second apart: a process that is gone or stopped. Anything else rests on 'did not move'."""


class Desk:
    """One request at a time is with the taker; of those that come meanwhile the most urgent is kept."""

    def __init__(self, plan: LaunchPlan, taker: TakerProcess, root: int, tops: Callable[[], tuple[int, ...]]) -> None:
        self._plan = plan
        self._taker = taker
        self._root = root
        self._tops = tops
        self._since = time.time()
        self._number = 0
        self._waiting: tuple[Why, bool] | None = None
        self._look: tuple[float, Told] | None = None
        self._sent_at = 0.0
        self._confirmed = False
        self.ranks_joined = False
        """Whether the ranks may have flight recorders to ask."""

    @property
    def busy(self) -> bool:
        return self._taker.busy or self._waiting is not None

    def looked_since(self, at: float) -> bool:
        """Whether a look that was ordered at or after `at` (monotonic) has been answered."""
        return self._look is not None and self._look[0] >= at

    def want(self, why: Why, *, confirm: bool = False) -> None:
        """Have the living server looked at."""
        if self._waiting is None or _URGENCY.index(why) < _URGENCY.index(self._waiting[0]):
            self._waiting = (why, confirm)
        self._hand_over()

    def want_log(self, why: Literal["ready", "ended"], *, fault_at: float | None = None) -> None:
        """Have what is on disk judged, without a look; not while it is busy.

        The last look at the living server counts too if it was ordered at or after `fault_at` (monotonic) and found why.
        """
        belongs = fault_at is not None and self.looked_since(fault_at) and self._look is not None and self._look[1].hung
        self._send(why, (), confirm=False, with_live=belongs)

    def step(self) -> Told | None:
        """The answer that came, if one did."""
        told = self._taker.answer()
        if told is not None and told.why not in ("ready", "ended") and not told.error:
            self._look = (self._sent_at, told)
            if told.hung and told.confidence == "weak" and not self._confirmed:
                self.want(told.why, confirm=True)
        self._hand_over()
        return told

    def _hand_over(self) -> None:
        if self._waiting is None or self._taker.busy:
            return
        (why, confirm), self._waiting = self._waiting, None
        tops = self._tops()
        if tops:
            self._send(why, tops, confirm=confirm or why not in _SURE)

    def _send(self, why: Why, tops: tuple[int, ...], *, confirm: bool, with_live: bool = False) -> None:
        self._number += 1
        self._sent_at = time.monotonic()
        self._confirmed = confirm
        self._taker.ask(
            Ask(
                number=self._number,
                why=why,
                root=self._root,
                tops=tops,
                confirm=confirm,
                flight=confirm and self.ranks_joined and self._plan.flight_pipe is not None,
                flight_dump=self._plan.flight_dump,
                with_live=with_live,
                since=self._since,
            )
        )
