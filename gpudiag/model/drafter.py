"""What `drafter check` reports: the checks, and what the drafter is."""

from __future__ import annotations

from msgspec import Struct

from gpudiag.model.doctor import DoctorReport


class Fed(Struct, frozen=True, kw_only=True):
    """Layers of the target that one code path of an engine feeds the drafter, as capture indices (i: input of layer i)."""

    path: str
    layers: tuple[int, ...]
    known_by: str
    """How that is known: the engine was asked, or its version is known."""
    where: str


class DrafterSummary(Struct, frozen=True, kw_only=True):
    """What a drafter is, by its files. Sizes in tensor elements, `weight_bytes` on disk."""

    path: str
    architecture: str | None
    dialect: str
    layers: int | None
    hidden_size: int | None
    vocab_size: int | None
    draft_vocab_size: int | None
    dtype: str | None
    weight_bytes: int
    max_positions: int | None
    made_for: str | None
    """The target that its configuration names."""
    trained_on: tuple[int, ...] | None
    """Capture indices; None without a target to count its layers."""
    trained_because: str
    fed: tuple[Fed, ...]


class DrafterReport(DoctorReport, frozen=True, kw_only=True):
    """A report of schema gpudiag.report/1 with, in addition, how each check ended and what the drafter is."""

    drafter: DrafterSummary | None = None
