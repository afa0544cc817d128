"""Audits a file of conversations: every row in one pass, a sample of them with the target's own tokenizer and template."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from gpudiag import __version__
from gpudiag.doctor import drafter_files, model_files
from gpudiag.drafter import audit_template
from gpudiag.drafter.audit_data import DataAudit
from gpudiag.drafter.conversations import Row, rows
from gpudiag.model.audit import Audit, AuditFact, AuditItem
from gpudiag.model.reading import Ok, Unavailable
from gpudiag.model.report import NotRead

_COMMAND: Final = "gpudiag drafter audit-data FILE"
_PART: Final = "template and coverage"


Said = list[AuditFact | AuditItem]


class Beside(Struct, frozen=True, kw_only=True):
    """What the rows are compared with; None where it was not named. `python` has transformers."""

    target: str | None = None
    draft: str | None = None
    python: str | None = None


class Sample:
    """So many conversations, each with the same chance (reservoir sampling), and the same ones each time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: list[Row] = []
        self._offered = 0
        self._dice = random.Random(0)  # noqa: S311  nothing secret hangs on which rows are looked at

    def offer(self, row: Row) -> None:
        if row.problem is not None or not row.turns:
            return
        self._offered += 1
        if len(self.rows) < self.size:
            self.rows.append(row)
        elif (place := self._dice.randrange(self._offered)) < self.size:
            self.rows[place] = row


def run(file: Path, beside: Beside, *, sample: int, limit: int | None = None, tell: Callable[[int], None] | None = None) -> Audit:
    """The audit. `limit` rows at most are read; `tell` is called with the number of rows so far. Raises OSError."""
    started = time.perf_counter()
    audit, taken, complete = DataAudit(), Sample(sample), True
    for one in rows(file):
        if limit is not None and audit.rows >= limit:
            complete = False
            break
        audit.take(one)
        taken.offer(one)
        if tell is not None:
            tell(audit.rows)
    more, missing = _with_tokenizer(audit, sorted(taken.rows, key=lambda row: row.line), beside)
    return Audit(
        gpudiag=__version__,
        kind="data",
        path=str(file),
        rows=audit.rows,
        facts=(*audit.facts(), *(one for one in more if isinstance(one, AuditFact))),
        items=(*audit.items(), *(one for one in more if not isinstance(one, AuditFact))),
        not_read=missing,
        took_s=round(time.perf_counter() - started, 3),
        complete=complete,
    )


def _with_tokenizer(audit: DataAudit, sample: list[Row], beside: Beside) -> tuple[Said, tuple[NotRead, ...]]:
    """What the target's tokenizer and template say of the sample, and what the drafter's vocabulary covers."""
    found: Said = []
    try:
        positions = None
        if beside.draft is not None:
            positions = drafter_files.draft_config(model_files.object_in(Path(beside.draft) / "config.json")).max_positions
        if audit.trained_ids:
            found += audit_template.coverage({"trained part": audit.trained_ids}, {}, beside.draft)
        if not sample:
            return found, ()
        if beside.target is None or beside.python is None:
            return found, (_unnamed(beside),)
        told = audit_template.render(sample, beside.target, beside.python)
        if isinstance(told, Ok):
            found += _told(told.value, beside.draft, positions)
            return found, ()
        reason = told.reason if isinstance(told, Unavailable) else told.error
        return found, (NotRead(source=_PART, reason=reason, help=getattr(told, "help", "")),)
    except (OSError, ValueError) as error:
        return found, (NotRead(source=_PART, reason=str(error), help=""),)


def _unnamed(beside: Beside) -> NotRead:
    if beside.target is None:
        return NotRead(source=_PART, reason="no target was named", help=f"{_COMMAND} --target DIR --draft DIR")
    help = f"{_COMMAND} --target DIR --python /path/to/venv/bin/python"
    return NotRead(source=_PART, reason="no interpreter with transformers was found", help=help)


def _told(told: audit_template.Rendered, draft: str | None, positions: int | None) -> list[AuditFact | AuditItem]:
    counted = {part: {int(i): n for i, n in ids.items()} for part, ids in told.tokens.items()}
    pieces = {int(i): piece for i, piece in told.pieces.items()}
    return [
        *audit_template.template_items(told),
        *audit_template.length_facts(told, positions),
        *audit_template.coverage(counted, pieces, draft),
    ]
