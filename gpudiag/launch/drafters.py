"""Which EAGLE-3 drafter is served: the one named, else one of the profile that is on this disk. Nothing is downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from gpudiag.errors import UsageError
from gpudiag.launch.profile import DrafterChoice
from gpudiag.model.modelfiles import ModelConfig

_REPOSITORY: Final = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")


def directory_of(name: str, variables: Mapping[str, str], home: Path) -> str | None:
    """A directory by that name, or the newest snapshot of that repository in the hub's cache; None if neither is there."""
    place = Path(name).expanduser()
    if place.is_dir():
        return os.path.abspath(place)
    if not _REPOSITORY.fullmatch(name):
        return None
    snapshots = hub_cache(variables, home) / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [s for s in snapshots.glob("*") if (s / "config.json").exists()]
    return str(max(found, key=lambda s: s.stat().st_mtime)) if found else None


def hub_cache(variables: Mapping[str, str], home: Path) -> Path:
    """Where huggingface_hub keeps repositories: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub (its documentation)."""
    if variables.get("HF_HUB_CACHE"):
        return Path(variables["HF_HUB_CACHE"])
    cache = Path(variables.get("XDG_CACHE_HOME") or home / ".cache")
    return Path(variables.get("HF_HOME") or cache / "huggingface") / "hub"


def required_directory(option: str, name: str, variables: Mapping[str, str], home: Path) -> str:
    """The directory of a model or drafter that the user named. Raises UsageError with what to type."""
    found = directory_of(name, variables, home)
    if found is not None:
        return found
    if _REPOSITORY.fullmatch(name) and not name.startswith("."):
        short = name.rpartition("/")[2]
        raise UsageError(
            f"{option} {name}: no such directory, and it is not in the hub's cache {hub_cache(variables, home)}",
            help=f"hf download {name} --local-dir {short}, then {option} {short}",
        )
    why = "it is no directory" if os.path.exists(name) else "no such directory"
    raise UsageError(f"{option} {name}: {why}", help=f"ls -d {os.path.dirname(name) or '.'}/*")


def fitting(choices: Sequence[DrafterChoice], model: ModelConfig | None) -> tuple[DrafterChoice, ...]:
    """The drafters of a profile that were made for a target of this size."""
    return tuple(_fitting(choices, model))


def _fitting(choices: Sequence[DrafterChoice], model: ModelConfig | None) -> Iterator[DrafterChoice]:
    for one in choices:
        wanted = ((one.hidden_size, model and model.hidden_size), (one.layers, model and model.layers))
        if all(want is None or want == has for want, has in (*wanted, (one.vocab_size, model and model.vocab_size))):
            yield one
