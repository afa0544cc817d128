"""What the checks of an install share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpudiag.model.facts import Facts
from gpudiag.model.install import Environment, Install
from gpudiag.model.reading import Ok, Reading
from gpudiag.rules.preflight.base import Answer, skipped, unread

T = TypeVar("T")


def part(facts: Facts, choose: Callable[[Install], Reading[T]]) -> T | Answer:
    """One part of what was read of the install; or how a check that needs it ends."""
    if not isinstance(facts.install, Ok):
        return skipped("no interpreter to look into (--python)") if facts.asked.python is None else unread(facts.install)
    reading = choose(facts.install.value)
    return reading.value if isinstance(reading, Ok) else unread(reading)


def environment(facts: Facts) -> Environment | Answer:
    return part(facts, lambda install: install.environment)


def short(path: str) -> str:
    """The path from its package on: 'vllm/model_executor/models/kimi_k25.py'."""
    for marker in ("/site-packages/", "/dist-packages/"):
        _, found, rest = path.rpartition(marker)
        if found:
            return rest
    return path
