"""What training a drafter takes, and the commands that do it."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

PLAN_SCHEMA: Final = "gpudiag.drafter-plan/1"

Trainer = Literal["specforge", "speculators"]


class Estimate(Struct, frozen=True, kw_only=True):
    """One number with the formula that gave it. `low` and `high` bound it where it is a guess; equal where it is exact."""

    name: str
    low: float
    high: float
    unit: Literal["bytes", "seconds"]
    formula: str


class Step(Struct, frozen=True, kw_only=True):
    """One step: what it is for, in which environment, and the lines to type."""

    title: str
    where: str
    lines: tuple[str, ...]


class TrainingPlan(Struct, frozen=True, kw_only=True):
    """Numbers and steps for one target, trainer and amount of data. `warnings` are reasons not to start yet."""

    gpudiag: str
    trainer: Trainer
    version: str
    target: str
    layers: tuple[int, ...]
    """Capture indices: i is the input of layer i."""
    estimates: tuple[Estimate, ...]
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()
    schema: str = PLAN_SCHEMA
