"""What the checks of an install share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from gpudiag.model.facts import Facts
from gpudiag.model.install import Environment, Install
from gpudiag.model.reading import NOT_ASKED, Ok, Reading
from gpudiag.rules.preflight.base import Answer, skipped, unread

T = TypeVar("T")

NO_ENGINE: Final = "neither SGLang nor vLLM is installed there"


def part(facts: Facts, choose: Callable[[Install], Reading[T]]) -> T | Answer:
    """One part of what was read of the install; or how a check that needs it ends."""
    if not isinstance(facts.install, Ok):
        return skipped("no interpreter to look into (--python)") if facts.asked.python is None else unread(facts.install)
    install = facts.install.value
    reading = choose(install)
    if reading == NOT_ASKED:
        return skipped(_why_not_asked(facts, install))
    return reading.value if isinstance(reading, Ok) else unread(reading)


def _why_not_asked(facts: Facts, install: Install) -> str:
    about = install.environment
    if isinstance(about, Ok) and not engines(about.value):
        return NO_ENGINE
    return "left out by --fast" if facts.asked.depth == "fast" else "not asked for"


def engines(about: Environment) -> tuple[str, ...]:
    """The engines that this environment can import."""
    return tuple(name for name in ("sglang", "vllm") if (found := about.package(name)) is not None and found.origin)


def environment(facts: Facts) -> Environment | Answer:
    return part(facts, lambda install: install.environment)


def short(path: str) -> str:
    """The path from its package on: 'vllm/model_executor/models/kimi_k25.py'."""
    for marker in ("/site-packages/", "/dist-packages/"):
        _, found, rest = path.rpartition(marker)
        if found:
            return rest
    return path
