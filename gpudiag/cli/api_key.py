"""The key of a server, out of an environment variable: never an argument, which every user of the machine can read."""

from __future__ import annotations

import os

from gpudiag.errors import UsageError


def headers_from(variable: str | None) -> dict[str, str]:
    """Headers that carry the key; none if no variable is named. Raises UsageError if it is not set."""
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key or not all(32 < ord(letter) < 127 for letter in key):
        raise UsageError(f"--api-key-env {variable}: the variable holds no key", help=f"export {variable}=...")
    return {"Authorization": f"Bearer {key}"}
