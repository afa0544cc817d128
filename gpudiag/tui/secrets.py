"""Environment variables and command lines as they may be shown on a screen that others can see."""

from __future__ import annotations

from typing import Final

from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.render.plain import clean
from gpudiag.session.redact import HARMLESS_VARIABLES
from gpudiag.session.secret import SECRET_VARIABLE, masked, secret_arguments

HIDDEN: Final = "(hidden)"


def shown_variable(name: str, value: str) -> str:
    """The value, unless its name is not known to be harmless; without what looks like a token, a password or a key."""
    if SECRET_VARIABLE.search(name) or not HARMLESS_VARIABLES.fullmatch(name):
        return HIDDEN if value else ""
    return clean(masked(value, HIDDEN))


def shown_command(process: Process, *, limit: int = 2000) -> str:
    """The command line on one line, without the values of secret flags and without what looks like a token."""
    if not isinstance(process.cmdline, Ok):
        return clean(process.title, limit=limit)
    arguments = list(process.cmdline.value)
    secret = secret_arguments(arguments)
    told = [HIDDEN if n in secret else argument for n, argument in enumerate(arguments)]
    return clean(masked(" ".join(told), HIDDEN).strip(), limit=limit) or clean(process.name)
