"""A judgement and what it rests on."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gpudiag.model.node import Node

Severity = Literal["error", "warning", "info"]
Confidence = Literal["proven", "strong", "weak"]

SEVERITY_ORDER: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}
CONFIDENCE_ORDER: dict[Confidence, int] = {"weak": 0, "strong": 1, "proven": 2}


class Evidence(Struct, frozen=True, kw_only=True):
    """One thing that was seen. `source` names where (see rules.confidence), `excerpt` is what stood there, `at` is Unix time."""

    source: str
    claim: str
    excerpt: str = ""
    at: float | None = None


class Consequence(Struct, frozen=True, kw_only=True):
    """Something that is wrong only because of the finding it is listed under."""

    node: Node
    title: str


class Culprit(Struct, frozen=True, kw_only=True):
    """Where to look. `file` and `line` name a source line, `path` a lock file, library, model or config file."""

    node: Node
    pid: int | None = None
    tid: int | None = None
    rank: int | None = None
    """Global rank."""
    gpu: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    path: str | None = None
    kernel: str | None = None
    host: str | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """One rule's judgement. At least one piece of evidence, always."""

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    title: str
    subjects: tuple[Node, ...]
    evidence: Annotated[tuple[Evidence, ...], Meta(min_length=1)]
    next_steps: tuple[str, ...]
    culprits: tuple[Culprit, ...] = ()
    consequences: tuple[Consequence, ...] = ()

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"{self.code} {self.name}: a finding needs evidence")

    @property
    def runbook(self) -> str:
        """File name of the page that explains this finding."""
        return f"{self.code}-{self.name}.md"
