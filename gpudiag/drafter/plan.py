"""The plan of a training run: numbers, steps and reasons not to start yet."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from gpudiag import __version__
from gpudiag.drafter.plan_numbers import Target, Work, estimates
from gpudiag.drafter.plan_steps import VERSIONS, Recipe, steps
from gpudiag.model.training_plan import Estimate, Trainer, TrainingPlan
from gpudiag.rules.drafter.aux_layers import default
from gpudiag.rules.preflight.words import size

_CONVERSATION: Final = 1200
_LITTLE: Final = 60_000_000
"""Tokens of 50,000 conversations. Public drafters took 300,000 and more; speculators' example with 5,000 accepts 1.49 a round."""
_FEWEST: Final = 7


def plan(trainer: Trainer, target: Target, work: Work, *, data: str, place: str, reasoning: bool, tp: int) -> TrainingPlan:
    """What it takes to train a drafter for this target with this trainer; `place` is where everything is to be written."""
    layers = default(target.layers)
    recipe = Recipe(
        target=target,
        work=work,
        layers=layers,
        data=data,
        place=place,
        reasoning=reasoning,
        draft_config=f"{place}/draft_config.json",
        tp=tp,
    )
    numbers = estimates(target, work)
    return TrainingPlan(
        gpudiag=__version__,
        trainer=trainer,
        version=VERSIONS[trainer],
        target=target.path,
        layers=layers,
        estimates=numbers,
        steps=steps(trainer, recipe),
        warnings=tuple(_warnings(target, work, numbers, place)),
    )


def _warnings(target: Target, work: Work, numbers: tuple[Estimate, ...], place: str) -> list[str]:
    found = []
    states = next(n for n in numbers if n.name == "hidden states")
    free = _free(place)
    if free is not None and states.low > free:
        found.append(
            f"the hidden states take {size(int(states.low))}, and {size(free)} are free at {place}: another disk, or fewer tokens"
        )
    if work.tokens < _LITTLE:
        found.append(
            f"{work.tokens:,} tokens are some {work.tokens // _CONVERSATION:,} conversations: enough to see that it learns, "
            "too few to serve (with 5,000 speculators' own example accepts 1.49 tokens a round; public drafters took 300,000 "
            "and more)"
        )
    if target.layers < _FEWEST:
        found.append(f"a target of {target.layers} layers is too shallow for the usual layers 2, n / 2 and n - 3")
    if target.positions and work.length < target.positions // 8:
        sees = f"the drafter sees {work.length:,} tokens at a time, the target takes {target.positions:,}"
        found.append(f"{sees}: beyond it acceptance falls (GPD609)")
    return found


def _free(place: str) -> int | None:
    """Bytes free where `place` is or will be."""
    there = next((p for p in (Path(place).absolute(), *Path(place).absolute().parents) if os.path.isdir(p)), None)
    try:
        return shutil.disk_usage(there).free if there is not None else None
    except OSError:
        return None
