"""Bytes that no UTF-8 terminal sends, such as a paste from one of another encoding, must not end the interface."""

from __future__ import annotations

import codecs
import functools
from typing import TYPE_CHECKING

from textual.drivers import linux_driver

if TYPE_CHECKING:
    from collections.abc import Callable


def forgiving(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    """The decoder that puts U+FFFD where the bytes make no sense."""
    return functools.partial(codecs.getincrementaldecoder(encoding), "replace")


def forgive() -> None:
    """Textual 8.2 decodes what is typed strictly, in a thread whose exception ends the application."""
    setattr(linux_driver, "getincrementaldecoder", forgiving)  # noqa: B010
