"""A progress bar on stderr for what takes long; without a terminal a line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from gpudiag.cli.output import say

Event = dict[str, Any]

_EVERY_S: Final = 15.0


@contextlib.contextmanager
def bar(what: str, *, unit: str) -> Iterator[Callable[[Event], None]]:
    """Show events of the form {"done", "of", "rate"?, "note"?}. `rate` is tokens a second, `note` a few words beside the bar."""
    if sys.stderr.isatty():
        from gpudiag.render.progress import Bar

        with Bar(what, unit) as drawn:
            yield drawn.show
        return
    last = time.monotonic()

    def line(event: Event) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _EVERY_S and isinstance(event.get("of"), int):
            last = now
            say(" ".join(filter(None, (f"{what}: {event.get('done')} of {event['of']} {unit}", str(event.get("note") or "")))))

    yield line
