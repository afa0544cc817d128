"""GPD107: what is installed is not what the engine asks for."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.install import Pin
from gpudiag.rules.install.reading import NO_ENGINE, engines, environment, part
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen, skipped
from gpudiag.rules.preflight.words import listing, plural


def evaluate(facts: Facts) -> Answer:
    pins = part(facts, lambda install: install.pins)
    if isinstance(pins, Answer):
        return pins
    about = environment(facts)
    if not isinstance(about, Answer) and not engines(about):
        return skipped(NO_ENGINE)
    by_distribution: dict[str, list[Pin]] = defaultdict(list)
    for pin in pins:
        by_distribution[pin.distribution].append(pin)
    made = (
        CHECK.finding(
            f"{name} asks for {listing([_wanted(p) for p in unmet], 3)}",
            [seen("package-metadata", f"{plural(len(unmet), 'requirement')} not met", "\n".join(map(_told, unmet[:20])))],
            (
                f"pip install --dry-run {name}   (shows what pip would change)",
                "one engine for each environment: SGLang and vLLM pin different versions of torch",
            ),
            severity=None if any(p.installed for p in unmet) else "info",
        )
        for name, unmet in by_distribution.items()
    )
    return found(made, passed("every requirement of the engine is met"))


def _wanted(pin: Pin) -> str:
    return f"{pin.requirement.partition(';')[0].strip()} ({pin.installed or 'absent'})"


def _told(pin: Pin) -> str:
    return f"{pin.requirement.partition(';')[0].strip()}: installed {pin.installed or 'no'}"


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD107",
        name="package-pins-conflict",
        severity="warning",
        category="install",
        asks="are the versions installed that the engine asks for?",
    ),
    evaluate=evaluate,
)
