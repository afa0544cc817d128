"""Which phase of its start a server is in, from the steps that it logs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Final, get_args

from msgspec import Struct, structs

from gpudiag.logs.engines.base import SERVING
from gpudiag.logs.events import STEPS
from gpudiag.logs.grammar import parse
from gpudiag.logs.prefilter import Finder
from gpudiag.model.run import Phase, PhaseProgress

ORDER: Final[tuple[Phase, ...]] = get_args(Phase)

_BEGINS: Final[Mapping[int, Phase]] = {
    30: "distributed-init",
    32: "distributed-init",
    50: "weight-load",
    60: "kv-allocation",
    62: "kv-allocation",
    66: "compile",
    70: "kv-allocation",
    80: "graph-capture",
    84: "compile",
    85: "warm-up",
    90: "warm-up",
    95: "warm-up",
    SERVING: "warm-up",
    SERVING + 5: "warm-up",
}
"""The phase that a server is in once it has logged a step of this order (logs.engines)."""

_SHARDS: Final = re.compile(rb"(?:checkpoint )?shards[^\r\n]{0,40}?(\d{1,3})% Completed \| (\d{1,6})/(\d{1,6})", re.IGNORECASE)
"""vLLM 0.20 to 0.33 and SGLang 0.5: 'Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  2.11it/s]'."""
_CAPTURE: Final = re.compile(rb"Captur\w+[^\r\n]{0,80}?(\d{1,3})%\|[^\r\n|]{0,60}\| (\d{1,5})/(\d{1,5})")
_MOST_LINES: Final = 2000


class Fraction(Struct, frozen=True, kw_only=True):
    """What a progress bar in the log says."""

    done: int
    total: int


class PhaseClock:
    """The phases that were reached, in order; a start never goes back to one.

    A drafter is loaded after the target's KV cache is there: that counts to the phase in which it happens.
    """

    def __init__(self, began_at: float, last_run: Mapping[str, float]) -> None:
        self._last = last_run
        self._began: dict[Phase, float] = {"import": began_at}
        self._ended: dict[Phase, float] = {}
        self.listening = False
        """Whether the server has logged that it accepts clients."""
        self.shards: Fraction | None = None
        self.graphs: Fraction | None = None
        self._finder = Finder(tuple(dict.fromkeys(s.anchor.encode() for s in STEPS if s.order <= SERVING + 5)))

    @property
    def current(self) -> Phase:
        return next(reversed(self._began))

    def began(self, phase: Phase) -> float | None:
        return self._began.get(phase)

    def enter(self, phase: Phase, at: float) -> bool:
        """Go on to a later phase; False if it is none."""
        if ORDER.index(phase) <= ORDER.index(self.current):
            return False
        self._ended[self.current] = at
        self._began[phase] = at
        if phase == "ready":
            self._ended[phase] = at
        return True

    def read(self, text: bytes, at: float) -> None:
        """Take in whole lines of the log that were written until `at` (Unix time)."""
        if match := _last(_SHARDS, text):
            self.shards = Fraction(done=int(match[2]), total=int(match[3]))
        if match := _last(_CAPTURE, text):
            self.graphs = Fraction(done=int(match[2]), total=int(match[3]))
            self.enter("graph-capture", at)
        for offset in self._finder.offsets(text)[:_MOST_LINES]:
            begin = max(text.rfind(b"\n", 0, offset), text.rfind(b"\r", 0, offset)) + 1
            end = text.find(b"\n", offset)
            line = text[begin : end if end >= 0 else len(text)][:4096].decode("utf-8", "replace")
            self._line(parse(line).text, at)

    def _line(self, line: str, at: float) -> None:
        for step in STEPS:
            if step.anchor in line and step.order <= SERVING + 5:
                if step.order in _BEGINS:
                    self.enter(_BEGINS[step.order], at)
                self.listening |= step.order >= SERVING

    def phases(self, details: Mapping[Phase, PhaseProgress]) -> tuple[PhaseProgress, ...]:
        """Every phase that has begun, with what `details` know of how much of it is done."""
        return tuple(self._with(phase, details.get(phase)) for phase in self._began)

    def _with(self, phase: Phase, detail: PhaseProgress | None) -> PhaseProgress:
        return self.plain(phase) if detail is None else structs.replace(detail, ended_at=self._ended.get(phase))

    def plain(self, phase: Phase) -> PhaseProgress:
        return PhaseProgress(
            phase=phase, began_at=self._began[phase], ended_at=self._ended.get(phase), last_run_s=self._last.get(phase)
        )

    def durations(self) -> dict[str, float]:
        """Seconds of each phase that has ended."""
        return {phase: round(end - self._began[phase], 3) for phase, end in self._ended.items() if phase != "ready"}


def _last(pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    return deque(pattern.finditer(text), maxlen=1).pop() if b"%" in text and pattern.search(text) else None
