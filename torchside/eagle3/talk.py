"""What the child says: one JSON object a line on stdout. Nothing else writes there."""

from __future__ import annotations

import json
import os
import sys
import time

_EVERY_S = 0.2


class Talk:
    """Events for gpudiag: progress at most five times a second, one result at the end."""

    def __init__(self):
        # Libraries print what they like; they get stderr.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._last = 0.0

    def progress(self, what, done, of, **more):
        now = time.monotonic()
        if done >= of or now - self._last > _EVERY_S:
            self._last = now
            self.say(event="progress", what=what, done=done, of=of, **more)

    def say(self, **event):
        self._out.write(json.dumps(event) + "\n")
        self._out.flush()
