"""Finds profiles: shipped ones, the user's own, and the one that fits a model."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from gpudiag import config
from gpudiag.errors import UsageError
from gpudiag.launch.profile import Profile
from gpudiag.model.modelfiles import ModelConfig

CPU: Final = "cpu"
"""The shipped profile for a host without a GPU."""


def user_directory(variables: Mapping[str, str], home: Path) -> Path:
    return config.directory("config", variables, home) / "profiles"


def named(name: str, variables: Mapping[str, str], home: Path) -> Profile:
    """A profile by file or name; the user's own come first. Raises UsageError with the nearest name."""
    if name.endswith(".toml") or os.sep in name:
        return config.read_toml(Path(name).expanduser(), Profile)
    own = user_directory(variables, home) / f"{name}.toml"
    if own.is_file():
        return config.read_toml(own, Profile)
    shipped = _shipped()
    if name in shipped:
        return _parsed(name, shipped[name])
    known = sorted({*shipped, *_own_names(variables, home)})
    near = difflib.get_close_matches(name, known, n=1)
    raise UsageError(
        f"there is no profile {name!r}",
        help=f"--profile {near[0]}" if near else f"there are: {', '.join(known)}; or name a .toml file",
    )


def all_profiles(variables: Mapping[str, str], home: Path) -> tuple[tuple[Profile, str], ...]:
    """Every profile with its place, the user's own first; a shipped one of the same name is hidden by it."""
    own = {name: user_directory(variables, home) / f"{name}.toml" for name in _own_names(variables, home)}
    found = [(config.read_toml(path, Profile), str(path)) for path in own.values()]
    return (*found, *((_parsed(name, text), "shipped") for name, text in sorted(_shipped().items()) if name not in own))


def matching(model: ModelConfig, variables: Mapping[str, str], home: Path) -> Profile | None:
    """The profile for a model by its config.json: an architecture that is named beats a model type."""
    profiles = [profile for profile, _ in all_profiles(variables, home)]
    by_architecture = [p for p in profiles if set(model.architectures) & set(p.match.architectures)]
    by_type = [p for p in profiles if model.model_type is not None and model.model_type in p.match.model_type]
    return next(iter((*by_architecture, *by_type)), None)


def _shipped() -> dict[str, bytes]:
    folder = resources.files("gpudiag.launch") / "shipped"
    return {f.name.removesuffix(".toml"): f.read_bytes() for f in folder.iterdir() if f.name.endswith(".toml")}


def _parsed(name: str, text: bytes) -> Profile:
    return config.parse_toml(text, Profile, f"the shipped profile {name}")


def _own_names(variables: Mapping[str, str], home: Path) -> list[str]:
    try:
        return sorted(n.removesuffix(".toml") for n in os.listdir(user_directory(variables, home)) if n.endswith(".toml"))
    except OSError:
        return []
