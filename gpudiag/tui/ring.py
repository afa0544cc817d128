"""The moments that can be gone back to: as many as fit into a bounded amount of memory."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from gpudiag.tui.frame import Frame, GpuPoint, decode, encode

MAX_FRAMES: Final = 600
MAX_BYTES: Final = 48 << 20


class Moment(Struct, frozen=True, kw_only=True):
    """What curves and lanes over time need of a frame. `states` is by pid, `server` the state of the server shown."""

    number: int
    at: float
    server: str | None
    states: dict[int, str]
    gpus: tuple[GpuPoint, ...]


class Ring:
    """Frames as compressed bytes, oldest first. The last that was asked for is kept decoded."""

    def __init__(self, max_frames: int = MAX_FRAMES, max_bytes: int = MAX_BYTES) -> None:
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._kept: deque[bytes] = deque()
        self._moments: deque[Moment] = deque()
        self._bytes = 0
        self._newest: Frame | None = None
        self._earlier: Frame | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, frame: Frame, data: bytes | None = None) -> None:
        """Keep a frame, `data` being its encoded form if that is at hand. The oldest go once there is no more room."""
        data = encode(frame) if data is None else data
        self._kept.append(data)
        self._moments.append(moment_of(frame))
        self._bytes += len(data)
        self._newest = frame
        while len(self._kept) > 1 and (len(self._kept) > self._max_frames or self._bytes > self._max_bytes):
            self._bytes -= len(self._kept.popleft())
            self._moments.popleft()

    @property
    def numbers(self) -> tuple[int, int] | None:
        """Number of the oldest and of the newest frame."""
        return (self._moments[0].number, self._moments[-1].number) if self._moments else None

    @property
    def newest(self) -> Frame | None:
        return self._newest

    def get(self, number: int) -> Frame | None:
        """The frame of this number, or the oldest if it has gone since."""
        if self._newest is None or number >= self._newest.number:
            return self._newest
        index = max(0, next((i for i, m in enumerate(self._moments) if m.number >= number), 0))
        wanted = self._moments[index].number
        if self._earlier is None or self._earlier.number != wanted:
            found = decode(self._kept[index])
            self._earlier = found if isinstance(found, Frame) else None
        return self._earlier

    def step(self, number: int, by: int) -> int:
        """The number `by` frames before or after this one, as far as there are any."""
        numbers = [m.number for m in self._moments]
        if not numbers:
            return number
        index = next((i for i, n in enumerate(numbers) if n >= number), len(numbers) - 1)
        return numbers[max(0, min(len(numbers) - 1, index + by))]

    def moments(self, until: int, limit: int) -> list[Moment]:
        """At most `limit` moments up to this frame, oldest first."""
        found = [m for m in self._moments if m.number <= until]
        return found[-limit:]


def moment_of(frame: Frame) -> Moment:
    workers = [w for r in frame.reports if r.target for w in r.target.workers]
    first = frame.reports[0].target if frame.reports else None
    return Moment(
        number=frame.number,
        at=frame.at,
        server=first.state if first else None,
        states={w.pid: w.state for w in workers},
        gpus=frame.gpus,
    )
