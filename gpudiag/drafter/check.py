"""The static check of a drafter against its target and the installed engine, as a function."""

from __future__ import annotations

from typing import Final

from gpudiag.doctor import facts as doctor_facts
from gpudiag.model.doctor import CheckResult
from gpudiag.model.facts import Asked, Facts, ServedBy
from gpudiag.model.finding import Finding
from gpudiag.rules.preflight import judge, registry
from gpudiag.rules.preflight.base import Check

CHECKS: Final[tuple[Check, ...]] = tuple(c for c in registry.CHECKS if c.info.category == "drafter")
"""Every check whose subject is the drafter, its interface in the target's class included."""


def read(draft: str, target: str | None, *, engine: ServedBy | None, python: str | None, algorithm: str | None = None) -> Facts:
    """What the files and the installed engine say. Never raises for what is wrong with them: that is a Reading."""
    return doctor_facts.read_pair(
        Asked(engine=engine, python=python, model=target, draft=draft, algorithm=algorithm, depth="fast")
    )


def results(facts: Facts) -> tuple[CheckResult, ...]:
    """How each check of the drafter ends on these facts."""
    return judge.judge(facts, CHECKS)


def check(
    draft: str, target: str | None, *, engine: ServedBy | None = None, python: str | None = None, algorithm: str | None = None
) -> tuple[Finding, ...]:
    """All findings about a drafter directory, its target's directory and the engine that `python` has installed."""
    facts = read(draft, target, engine=engine, python=python, algorithm=algorithm)
    return tuple(finding for result in results(facts) for finding in result.findings)
