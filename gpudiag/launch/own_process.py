"""How gpudiag starts processes of its own that do not end with the command: the supervisor and its taker of evidence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import gpudiag

_BOOT: Final = "import importlib, sys; sys.path.insert(0, sys.argv[2]); importlib.import_module(sys.argv[3]).main(sys.argv[4:])"


def command(module: str, *arguments: str) -> list[str]:
    """Run `main(arguments)` of a module of gpudiag in a new interpreter.

    The environment stays as it is, since the server inherits it: where to find gpudiag stands on the command line. -P keeps
    the current directory, which is anybody's, off sys.path. The word 'gpudiag' among the first four tells recognition that
    this is not somebody's script around an engine.
    """
    root = str(Path(gpudiag.__file__).resolve().parents[1])
    return [sys.executable, "-Pc", _BOOT, "gpudiag", root, module, *arguments]
