"""Which interpreter to look into when none is named."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ENGINES: Final = ("sglang", "vllm")
_PACKAGES: Final = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages")


def choose(variables: Mapping[str, str], engine: str | None) -> str | None:
    """The first interpreter around that has the engine (or either one); None if none has.

    Looked at are the active environment, that of an engine's command on PATH, the first python3 on PATH, and gpudiag's own.
    An engine on PYTHONPATH is one that all of them have.
    """
    wanted = (engine,) if engine else ENGINES
    everywhere = _on_python_path(variables, wanted)
    return next((p for p in _candidates(variables) if (everywhere and os.access(p, os.X_OK)) or has_any(p, wanted)), None)


def _on_python_path(variables: Mapping[str, str], names: tuple[str, ...]) -> bool:
    places = [Path(p) for p in variables.get("PYTHONPATH", "").split(os.pathsep) if p]
    return any((place / name / "__init__.py").is_file() for place in places for name in names)


def _candidates(variables: Mapping[str, str]) -> Iterator[str]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(variable):
            yield str(Path(variables[variable], "bin", "python"))
    for command in (*ENGINES, "python3", "python"):
        found = shutil.which(command, path=variables.get("PATH"))
        if found and command in ENGINES:
            # A console script lies beside the interpreter of its environment.
            yield str(Path(found).resolve().parent / "python")
        elif found:
            yield found
    yield sys.executable


def has_any(python: str, names: tuple[str, ...]) -> bool:
    """Whether one of these packages lies in a package directory of the interpreter's prefix; the interpreter is not run."""
    if not os.access(python, os.X_OK):
        return False
    prefix = Path(python).parent.parent
    return any((d / name / "__init__.py").is_file() for pattern in _PACKAGES for d in prefix.glob(pattern) for name in names)
