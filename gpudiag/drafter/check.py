"""The static check of a drafter against its target and the installed engine, as a function."""

from __future__ import annotations

from typing import Final

from gpudiag.doctor import facts as doctor_facts
from gpudiag.model.doctor import CheckResult
from gpudiag.model.drafter import DrafterReport
from gpudiag.model.facts import Asked, Facts, ServedBy
from gpudiag.model.finding import Finding
from gpudiag.model.reading import Failed, Ok
from gpudiag.rules.drafter import summary
from gpudiag.rules.preflight import judge, registry
from gpudiag.rules.preflight.base import Check

CHECKS: Final[tuple[Check, ...]] = tuple(c for c in registry.CHECKS if c.info.category == "drafter")
"""Every check whose subject is the drafter, its interface in the target's class included."""


def read(asked: Asked) -> Facts:
    """What the files and the installed engine say. Never raises for what is wrong with them: that is a Reading.

    Of `asked` counts: draft, model (the target), engine, python, algorithm, context, and depth: with `fast` no module of the
    engine is imported; the few functions that decide are run alone.
    """
    return doctor_facts.read_pair(asked)


def notes(facts: Facts) -> tuple[str, ...]:
    """What went wrong while the engine was asked, where another way led to the answer, or none did."""
    looked = facts.install.value.aux_layers if isinstance(facts.install, Ok) else None
    if isinstance(looked, Failed):
        return (f"the engine did not say which layers it feeds: {looked.error}",)
    return tuple(note for one in looked.value for note in one.notes) if isinstance(looked, Ok) else ()


def results(facts: Facts) -> tuple[CheckResult, ...]:
    """How each check of the drafter ends on these facts."""
    return judge.judge(facts, CHECKS)


def report(facts: Facts, ended: tuple[CheckResult, ...], version: str, wall_s: float) -> DrafterReport:
    """The results with what the drafter is. Which engine to choose is doctor's question, and is left to it."""
    plain = judge.report(facts, ended, command="drafter check", version=version, wall_s=wall_s)
    parts = {**{f: getattr(plain, f) for f in plain.__struct_fields__}, "choices": (), "drafter": summary.summary(facts)}
    return DrafterReport(**parts)


def check(
    draft: str, target: str | None, *, engine: ServedBy | None = None, python: str | None = None, algorithm: str | None = None
) -> tuple[Finding, ...]:
    """All findings about a drafter directory, its target's directory and the engine that `python` has installed.

    Takes about a second: no module of the engine is imported.
    """
    asked = Asked(engine=engine, python=python, model=target, draft=draft, algorithm=algorithm, depth="fast")
    return tuple(finding for result in results(read(asked)) for finding in result.findings)
