"""Where NCCL takes its settings from."""

from __future__ import annotations

from gpudiag.model.facts import System


def settings(system: System) -> dict[str, tuple[str, str]]:
    """Value and origin of each setting: the environment, else a configuration file (/etc/nccl.conf, ~/.nccl.conf)."""
    merged: dict[str, tuple[str, str]] = {}
    for path, text in system.nccl_files.items():
        for line in text.splitlines():
            name, equals, value = line.partition("#")[0].partition("=")
            if equals:
                merged.setdefault(name.strip(), (value.strip(), path))
    merged.update({name: (value, "environment") for name, value in system.environment.items()})
    return merged
