"""What a check is, and how one says how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from gpudiag.model.doctor import CheckInfo, CheckResult, CheckStatus
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Consequence, Culprit, Evidence, Finding, Severity
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Reading, Unavailable
from gpudiag.rules.base import finding
from gpudiag.rules.confidence import Link

T = TypeVar("T")


class Answer(Struct, frozen=True, kw_only=True):
    """How a check ended, before it is joined with what the check is."""

    status: CheckStatus
    detail: str = ""
    help: str = ""
    findings: tuple[Finding, ...] = ()


class Check(Struct, frozen=True, kw_only=True):
    """One question before serving. `evaluate` is pure: it gets everything that was read and says how the check ended."""

    info: CheckInfo
    evaluate: Callable[[Facts], Answer]

    def run(self, facts: Facts) -> CheckResult:
        """The result. A mistake inside the check makes it unknown: it must never accuse the machine, nor hide the others."""
        try:
            answer = self.evaluate(facts)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            answer = Answer(
                status="unknown",
                detail=f"the check itself broke: {type(error).__name__}: {error}",
                help=f"gpudiag doctor --only {self.info.code} --json, and report it in the project's issue tracker",
            )
        return CheckResult(info=self.info, status=answer.status, detail=answer.detail, help=answer.help, findings=answer.findings)

    def finding(
        self,
        title: str,
        links: Sequence[Link],
        next_steps: Sequence[str],
        *,
        culprits: Sequence[Culprit] = (),
        subjects: Sequence[str] = (),
        notes: Sequence[Evidence] = (),
        consequences: Sequence[Consequence] = (),
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of this check; `severity` only where the check knows more and less severe forms."""
        return finding(
            self.info.code,
            self.info.name,
            severity or self.info.severity,
            title=title,
            links=links,
            next_steps=next_steps,
            culprits=culprits,
            subjects=subjects,
            notes=notes,
            consequences=consequences,
        )


def passed(detail: str) -> Answer:
    return Answer(status="ok", detail=detail)


def skipped(why: str) -> Answer:
    """The question does not arise here."""
    return Answer(status="skipped", detail=why)


def unknown(why: str, help: str = "") -> Answer:
    return Answer(status="unknown", detail=why, help=help)


def found(findings: Iterable[Finding], otherwise: Answer) -> Answer:
    """The findings, or `otherwise` if there are none."""
    made = tuple(findings)
    return Answer(status="finding", detail=made[0].title, findings=made) if made else otherwise


def unread(reading: Unavailable | Failed) -> Answer:
    """What a check says when the reading it needs is missing."""
    if reading == NOT_ASKED:
        return skipped("not asked for")
    if isinstance(reading, Failed):
        return unknown(reading.error)
    return unknown(reading.reason, reading.help)


def values(readings: Iterable[Reading[T]]) -> list[T]:
    """The values of those readings that have one."""
    return [reading.value for reading in readings if isinstance(reading, Ok)]


def seen(source: str, claim: str, excerpt: str = "") -> Link:
    """A link of one piece of evidence."""
    return (Evidence(source=source, claim=claim, excerpt=excerpt),)
