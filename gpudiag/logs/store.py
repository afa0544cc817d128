"""Bounded keeping: the first and the last of everything, and a count of what fell out in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

KEPT: Final = 256


class Kept(Generic[T]):
    """The first `limit` and the last `limit` items that were added."""

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        self._first: list[T] = []
        self._last: deque[T] = deque(maxlen=limit)
        self.dropped = 0

    def add(self, item: T) -> None:
        if len(self._first) < self._limit:
            self._first.append(item)
            return
        if len(self._last) == self._limit:
            self.dropped += 1
        self._last.append(item)

    def items(self) -> Iterable[T]:
        yield from self._first
        yield from self._last

    def keep(self, test: Callable[[T], bool]) -> None:
        """Forget the items for which `test` is false."""
        kept = [i for i in self.items() if test(i)]
        self._first = kept[: self._limit]
        self._last = deque(kept[self._limit :], maxlen=self._limit)
