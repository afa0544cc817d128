"""What an audit of training data found: counts, and by line or file where to look. Never the texts themselves."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from gpudiag.model.finding import Severity
from gpudiag.model.report import NotRead

AUDIT_SCHEMA: Final = "gpudiag.audit/1"


class AuditItem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or worth knowing, in `count` of `of` cases. `places`: the first few line numbers or files."""

    name: str
    severity: Severity
    title: str
    count: int
    of: int
    places: tuple[str, ...] = ()
    next_step: str = ""


class AuditFact(Struct, frozen=True, kw_only=True):
    """Something that was counted, in words: 'turns: 4,210, 2 to 14 a row'."""

    name: str
    value: str


class Audit(Struct, frozen=True, kw_only=True):
    """Conversations for training (`data`) or hidden states that were taken from them (`states`)."""

    gpudiag: str
    kind: Literal["data", "states"]
    path: str
    rows: int
    facts: tuple[AuditFact, ...]
    items: tuple[AuditItem, ...]
    not_read: tuple[NotRead, ...] = ()
    took_s: float = 0.0
    complete: bool = True
    """False if only a part was looked at (--limit, or a file that ends in the middle)."""
    schema: str = AUDIT_SCHEMA
