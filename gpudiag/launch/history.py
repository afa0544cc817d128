"""How long each phase took in the last run of the same server, to tell a slow start from a usual one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from gpudiag.files import remember
from gpudiag.launch.run_directory import state_home
from gpudiag.model.decoding import decode_json
from gpudiag.model.run import LaunchPlan

MAX_BYTES: Final = 1 << 16


class PhaseTimes(Struct, frozen=True, kw_only=True):
    """Seconds by phase. A phase that the last start did not reach keeps the time of one before."""

    seconds: dict[str, float]


def path_for(plan: LaunchPlan, home: Path | None = None) -> Path:
    """The same model, drafter, engine version and parallelism from the same profile make the same start."""
    parts = (
        plan.engine,
        plan.version or "",
        plan.profile or "",
        plan.model,
        plan.drafter or "",
        str((plan.tensor_parallel, plan.pipeline_parallel, plan.data_parallel)),
    )
    key = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return (home or state_home()) / "history" / f"{plan.engine}-{key}.json"


def load(path: Path) -> dict[str, float]:
    """Empty if there was no run before, or its file is not readable."""
    try:
        with open(path, "rb") as file:
            return decode_json(file.read(MAX_BYTES), PhaseTimes).seconds
    except (OSError, msgspec.MsgspecError):
        return {}


def save(path: Path, seconds: dict[str, float]) -> None:
    """Keep the times of this run. A state directory that cannot be written costs the comparison and nothing else."""
    remember(path, msgspec.json.encode(PhaseTimes(seconds={**load(path), **seconds})))
