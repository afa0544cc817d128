"""What `--json` prints: schema gpudiag.report/1."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.finding import Confidence, Consequence, Culprit, Evidence, Finding, Severity
from gpudiag.model.node import Node
from gpudiag.model.server import Engine, Rank
from gpudiag.model.wait import Wait

REPORT_SCHEMA: Final = "gpudiag.report/1"

ServerState = Literal["hung", "slow", "idle", "serving", "starting", "crashed", "unknown"]
Status = Literal["finding", "healthy", "insufficient"]


class Worker(Struct, frozen=True, kw_only=True):
    """One process of the target as the report shows it."""

    pid: int
    role: str
    rank: Rank
    gpu: str | None
    state: str
    """One word: running, busy, waiting, lock, asleep, idle, stopped, dead, unknown."""
    where: str | None
    waits_for: tuple[Node, ...]


class Target(Struct, frozen=True, kw_only=True):
    """The server that was looked at."""

    engine: Engine
    version: str | None
    root_pid: int
    state: ServerState
    workers: tuple[Worker, ...]
    log_silent_s: float | None = None
    """Seconds between the last write to the server's log and the look; None where nothing says so."""


class Verdict(Struct, frozen=True, kw_only=True):
    """The one sentence. `code`, `name`, `severity` and `confidence` are None unless `status` is 'finding'."""

    status: Status
    code: str | None
    name: str | None
    severity: Severity | None
    title: str
    confidence: Confidence | None
    next_step: str
    culprits: tuple[Culprit, ...] = ()


class ReportedFinding(Struct, frozen=True, kw_only=True):
    """A Finding in the form of the contract: with the name of its runbook page, without culprits of its own."""

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    title: str
    subjects: tuple[Node, ...]
    evidence: tuple[Evidence, ...]
    next_steps: tuple[str, ...]
    runbook: str
    consequences: tuple[Consequence, ...]

    @classmethod
    def of(cls, finding: Finding) -> ReportedFinding:
        return cls(
            code=finding.code,
            name=finding.name,
            severity=finding.severity,
            confidence=finding.confidence,
            title=finding.title,
            subjects=finding.subjects,
            evidence=finding.evidence,
            next_steps=finding.next_steps,
            runbook=finding.runbook,
            consequences=finding.consequences,
        )


class NotRead(Struct, frozen=True, kw_only=True):
    """A source that could not be used, why, and what to type to use it."""

    source: str
    reason: str
    help: str


class Cost(Struct, frozen=True, kw_only=True):
    """What the diagnosis cost, in seconds: wall time, and time for which threads of the target were stopped."""

    wall_s: float
    stopped_s: float


class Report(Struct, frozen=True, kw_only=True):
    """One server, one verdict."""

    gpudiag: str
    host: str
    generated_at: str
    command: str
    target: Target | None
    verdict: Verdict
    findings: tuple[ReportedFinding, ...]
    waits: tuple[Wait, ...]
    not_read: tuple[NotRead, ...]
    cost: Cost
    schema: str = REPORT_SCHEMA
