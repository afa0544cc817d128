"""Environment variables as they may be shown on a screen that others can see."""

from __future__ import annotations

from typing import Final

from gpudiag.render.plain import clean
from gpudiag.session.redact import HARMLESS_VARIABLES
from gpudiag.session.secret import SECRET_VARIABLE, secrets_in

HIDDEN: Final = "(hidden)"


def shown_variable(name: str, value: str) -> str:
    """The value, unless its name is not known to be harmless; without what looks like a token, a password or a key."""
    if SECRET_VARIABLE.search(name) or not HARMLESS_VARIABLES.fullmatch(name):
        return HIDDEN if value else ""
    pieces, position = [], 0
    for start, end in secrets_in(value):
        pieces += [value[position:start], HIDDEN]
        position = end
    return clean("".join((*pieces, value[position:])))
