"""Keeps what the user typed after --api-key and the like, and keys inside other values, off the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from gpudiag.model.run import LaunchPlan
from gpudiag.session.secret import SECRET_VARIABLE, masked, secret_arguments

HIDDEN: Final = "HIDDEN"
"""Stands for a secret; whoever copies the command puts it back."""


def for_display(plan: LaunchPlan) -> LaunchPlan:
    """The same plan to be printed. It starts no server."""
    return replace(
        plan,
        argv=_arguments(plan.argv),
        environment=tuple((name, _value(name, value)) for name, value in plan.environment),
        settings=tuple(replace(s, value=_value(s.name, s.value)) for s in plan.settings),
    )


def _value(name: str, value: str) -> str:
    """The value of a variable or an option."""
    return HIDDEN if value and SECRET_VARIABLE.search(name) else _arguments((name, value))[1]


def _arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """In both forms, `--api-key X` and `--api-key=X`."""
    secret = secret_arguments(list(arguments))
    return tuple(HIDDEN if index in secret else _shown(argument) for index, argument in enumerate(arguments))


def _shown(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return f"{name}={HIDDEN}" if equals and value and secret_arguments([name, value]) else masked(argument, HIDDEN)
