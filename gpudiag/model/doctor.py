"""What a check before serving ended with, and the report that carries it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gpudiag.model.finding import Finding, Severity
from gpudiag.model.report import Report

Category = Literal["gpu", "link", "host", "environment", "install", "build", "kernels", "model", "drafter", "launch"]
CheckStatus = Literal["ok", "finding", "skipped", "unknown"]

CATEGORIES: dict[Category, str] = {
    "gpu": "GPUs and driver",
    "link": "Links between GPUs",
    "host": "Host and container",
    "environment": "Environment variables, caches and ports",
    "install": "Installed packages",
    "build": "Building kernels",
    "kernels": "Compiled kernels",
    "model": "Model",
    "drafter": "EAGLE-3 drafter",
    "launch": "Options of the start",
}
"""Title of each category, in the order in which they are shown."""


class CheckInfo(Struct, frozen=True, kw_only=True):
    """What a check is, before it has run. `asks` is the question that it answers."""

    code: str
    name: str
    severity: Severity
    category: Category
    asks: str


class CheckResult(Struct, frozen=True, kw_only=True):
    """How one check ended.

    `detail` says what was seen (ok), why it does not apply (skipped) or why nothing could be seen (unknown); `help` is what
    would make an unknown known. An unknown is never an ok.
    """

    info: CheckInfo
    status: CheckStatus
    detail: str = ""
    help: str = ""
    findings: tuple[Finding, ...] = ()


class ReportedCheck(Struct, frozen=True, kw_only=True):
    """A CheckResult in the form of the contract; its findings stand in the report's own list, under the same code."""

    code: str
    name: str
    category: Category
    asks: str
    status: CheckStatus
    detail: str
    help: str

    @classmethod
    def of(cls, result: CheckResult) -> ReportedCheck:
        return cls(
            code=result.info.code,
            name=result.info.name,
            category=result.info.category,
            asks=result.info.asks,
            status=result.status,
            detail=result.detail,
            help=result.help,
        )


class Choice(Struct, frozen=True, kw_only=True):
    """How one engine would serve this model with this drafter. `supported` None is not known, and `why` says so."""

    engine: str
    version: str | None
    supported: bool | None
    why: str
    command: str
    kernels: tuple[str, ...]
    """What its compiled libraries can do on these GPUs, library by library, in words."""
    slow: tuple[str, ...]
    """What will be slower than it could be, or needs a change first."""


class DoctorReport(Report, frozen=True, kw_only=True):
    """A report of schema gpudiag.report/1 with, in addition, how each check ended. `target` is None.

    `choices` has an entry for each engine if a model and a drafter were named and no engine.
    """

    checks: tuple[ReportedCheck, ...] = ()
    choices: tuple[Choice, ...] = ()
