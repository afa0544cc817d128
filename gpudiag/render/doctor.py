"""The checks before serving as text: one line a category, every finding with what to do, details on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpudiag.model.doctor import CATEGORIES, Category, CheckInfo, CheckStatus, Choice, DoctorReport, ReportedCheck
from gpudiag.model.finding import SEVERITY_ORDER
from gpudiag.model.report import ReportedFinding
from gpudiag.render.canvas import Canvas, cells
from gpudiag.render.plain import ascii_only, clean
from gpudiag.render.safe import safe
from gpudiag.render.style import BOLD, CONFIDENCES, DIM, PINK, PLAIN, SEVERITIES, STATUSES, Look

_MAX_EXCERPT: Final = 8
_LOOKS: Final[dict[CheckStatus, Look]] = {
    "ok": STATUSES["healthy"],
    "unknown": STATUSES["insufficient"],
    "skipped": Look(glyph="-", ascii="-", word="skipped", color=DIM),
}


def text(
    report: DoctorReport,
    *,
    width: int = 80,
    color: bool = False,
    plain: bool = False,
    verbose: bool = False,
    about: Sequence[str] = (),
) -> str:
    """Draw a report of doctor. `verbose` shows every check and all evidence; `plain` draws with ASCII.

    `about` are lines about what was looked at, shown above the checks.
    """
    harmless = safe(report, plain=plain)
    canvas = Canvas(width, color=color, plain=plain)
    checks = [_cleaned(check, plain) for check in report.checks]
    _Page(report, harmless.findings, checks, canvas, verbose).draw(harmless.verdict.title, about)
    return canvas.text()


def listing(checks: Sequence[CheckInfo], *, width: int = 80, color: bool = False, plain: bool = False) -> str:
    """Every check with the question that it answers."""
    canvas = Canvas(width, color=color, plain=plain)
    for category, title in CATEGORIES.items():
        members = [c for c in checks if c.category == category]
        if members:
            canvas.row((title, BOLD))
            for info in members:
                canvas.paragraph(
                    [(f"  {info.code}  ", SEVERITIES[info.severity].color), (f"{info.name}: ", PLAIN)], info.asks, DIM
                )
    return canvas.text()


def _cleaned(check: ReportedCheck, plain: bool) -> ReportedCheck:
    def harmless(words: str) -> str:
        cleaned = clean(words)
        return ascii_only(cleaned) if plain else cleaned

    return ReportedCheck(
        code=check.code,
        name=check.name,
        category=check.category,
        asks=check.asks,
        status=check.status,
        detail=harmless(check.detail),
        help=harmless(check.help),
    )


_SUPPORT: Final[dict[bool | None, Look]] = {
    True: STATUSES["healthy"],
    False: SEVERITIES["error"],
    None: STATUSES["insufficient"],
}


class _Page:
    def __init__(
        self,
        report: DoctorReport,
        findings: Sequence[ReportedFinding],
        checks: Sequence[ReportedCheck],
        canvas: Canvas,
        verbose: bool,
    ) -> None:
        self.report = report
        self.findings = findings
        self.checks = checks
        self.canvas = canvas
        self.verbose = verbose

    def draw(self, title: str, about: Sequence[str]) -> None:
        report, canvas = self.report, self.canvas
        canvas.ends(
            [(f"gpudiag {report.gpudiag} {report.command}", DIM), (f"  {clean(report.host)}", PLAIN)], (report.generated_at, DIM)
        )
        canvas.rule()
        for number, line in enumerate(about):
            canvas.paragraph([("  " if number else "", PLAIN)], self._harmless(line), DIM if number else PLAIN)
        if about:
            canvas.rule()
        for category in CATEGORIES:
            members = [c for c in self.checks if c.category == category]
            if members:
                self._category(category, members)
        for choice in self.report.choices:
            self._choice(choice)
        canvas.rule()
        self._summary(title)

    def _choice(self, choice: Choice) -> None:
        """One engine of the comparison: a heading, then what speaks for and against it."""
        look = _SUPPORT[choice.supported]
        name = f"{choice.engine} {choice.version or ''}".rstrip()
        self.canvas.rule()
        self.canvas.paragraph([(f"{self._mark(look)} ", look.color), (f"{name}: ", BOLD)], self._harmless(choice.why))
        for label, lines in (("kernels", choice.kernels), ("slow", choice.slow)):
            for number, line in enumerate(lines):
                self.canvas.paragraph([(f"  {label if number == 0 else '':<8} ", DIM)], self._harmless(line))
        if choice.supported is not False:
            self.canvas.paragraph([("  serve    ", DIM)], self._harmless(choice.command))

    def _harmless(self, words: str) -> str:
        cleaned = clean(words)
        return ascii_only(cleaned) if self.canvas.plain else cleaned

    def _category(self, category: Category, members: Sequence[ReportedCheck]) -> None:
        found = [f for c in members if c.status == "finding" for f in self.findings if f.code == c.code]
        look = self._look(members, found)
        why = f": {_usual([c.detail for c in members])}" if look is _LOOKS["skipped"] else ""
        self.canvas.paragraph(
            [(f"{self._mark(look)} ", look.color)], CATEGORIES[category] + why, BOLD, right=(_counts(members), DIM)
        )
        for finding in dict.fromkeys(found):
            self._finding(finding)
        unknown = [c for c in members if c.status == "unknown"]
        for check in members:
            alike = [c for c in unknown if (c.detail, c.help) == (check.detail, check.help)]
            if check.status == "unknown":
                # One missing source takes many checks along; -v names them all.
                if self.verbose or check == alike[0]:
                    self._unknown(check, 0 if self.verbose else len(alike) - 1)
            elif self.verbose and check.status != "finding":
                self._check(check)

    def _look(self, members: Sequence[ReportedCheck], found: Sequence[ReportedFinding]) -> Look:
        """The worst of a category; an unknown is never shown as well."""
        if found:
            return SEVERITIES[max((f.severity for f in found), key=SEVERITY_ORDER.__getitem__)]
        statuses = {c.status for c in members}
        return _LOOKS["unknown"] if "unknown" in statuses else _LOOKS["ok"] if "ok" in statuses else _LOOKS["skipped"]

    def _finding(self, finding: ReportedFinding) -> None:
        look = SEVERITIES[finding.severity]
        right = (finding.confidence, CONFIDENCES[finding.confidence])
        self.canvas.paragraph([(f"  {self._mark(look)} {finding.code}  ", look.color)], finding.title, right=right)
        if self.verbose:
            self._evidence(finding)
        for number, step in enumerate(finding.next_steps):
            if number and not self.verbose:
                break
            self.canvas.paragraph([(f"      {self.canvas.lines.arrow} ", DIM)], step)
        if self.verbose:
            self.canvas.paragraph([(f"      {self.canvas.lines.arrow} ", DIM)], f"`gpudiag runbook {finding.code}`")

    def _evidence(self, finding: ReportedFinding) -> None:
        for evidence in finding.evidence:
            self.canvas.paragraph([("      ", DIM)], f"{evidence.claim} ({evidence.source})", DIM)
            for line in evidence.excerpt.splitlines()[:_MAX_EXCERPT]:
                head = f"        {self.canvas.lines.quote}"
                self.canvas.row((head, DIM), (self.canvas.fit(line.rstrip(), self.canvas.width - cells(head)), DIM))

    def _unknown(self, check: ReportedCheck, others: int) -> None:
        look = _LOOKS["unknown"]
        rest = f" and {_plural(others, 'other')}" if others else ""
        self.canvas.paragraph([(f"  {self._mark(look)} {check.code}  ", PINK)], f"{check.name}{rest} not known: {check.detail}")
        if check.help:
            self.canvas.paragraph([(f"      {self.canvas.lines.arrow} ", DIM)], check.help)

    def _check(self, check: ReportedCheck) -> None:
        look = _LOOKS[check.status]
        said = f"{check.name}: {check.detail}" if check.detail else check.name
        self.canvas.paragraph([(f"  {self._mark(look)} {check.code}  ", look.color)], said, DIM)

    def _summary(self, title: str) -> None:
        verdict = self.report.verdict
        look = SEVERITIES[verdict.severity] if verdict.severity else STATUSES.get(verdict.status, STATUSES["insufficient"])
        errors = sum(f.severity == "error" for f in self.findings)
        warnings = sum(f.severity == "warning" for f in self.findings)
        infos = len(self.findings) - errors - warnings
        unknown = sum(c.status == "unknown" for c in self.checks)
        told = [
            _plural(errors, "error"),
            _plural(warnings, "warning"),
            _plural(infos, "note"),
            f"{unknown} not known" if unknown else "",
        ]
        line = ", ".join(t for t in told if t) if self.findings else title
        self.canvas.paragraph([(f"{self._mark(look)} ", look.color)], line, BOLD)
        self.canvas.row(
            (f"  took {self.report.cost.wall_s:.1f} s" + ("" if self.verbose else "; -v shows every check and its evidence"), DIM)
        )

    def _mark(self, look: Look) -> str:
        return look.mark(plain=self.canvas.plain)


def _plural(count: int, word: str) -> str:
    return "" if not count else f"{count} {word}" if count == 1 else f"{count} {word}s"


def _usual(reasons: Sequence[str]) -> str:
    """The reason that most of them have."""
    return max(reasons, key=reasons.count)


def _counts(members: Sequence[ReportedCheck]) -> str:
    """'5 ok, 2 skipped'."""
    counts: dict[CheckStatus, int] = {}
    for check in members:
        counts[check.status] = counts.get(check.status, 0) + 1
    words: dict[CheckStatus, str] = {"ok": "ok", "finding": "found", "unknown": "not known", "skipped": "skipped"}
    return ", ".join(f"{counts[status]} {word}" for status, word in words.items() if status in counts)
