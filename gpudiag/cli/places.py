"""Directories and interpreters that a person names: refused before anything is read, with what to type instead."""

from __future__ import annotations

import os
import shutil

from gpudiag.errors import UsageError


def check_directory(name: str, path: str | None, *, on_hub: bool) -> None:
    """Raise UsageError unless this is a directory, or nothing was named. `name` is the option or argument as it is typed.

    With `on_hub`, what looks like the name of a model on a hub is told apart from a path that is wrong.
    """
    if path is not None and not os.path.isdir(path):
        raise UsageError(f"{name} {path}".strip() + f": {_why_no_directory(path)}", help=_where(name, path, on_hub))


def program(python: str, command: str) -> str:
    """The path of an interpreter, also one that is named without its path. Raises UsageError with a `command` that works."""
    found = shutil.which(python)
    if found is None:
        raise UsageError(
            f"--python {python}: no program there that you may run", help=f"{command} --python /path/to/venv/bin/python"
        )
    return found


def _why_no_directory(path: str) -> str:
    try:
        os.stat(path)
    except PermissionError:
        return "a directory above it may not be entered"
    except OSError:
        return "no such directory"
    return "no directory"


def _where(name: str, path: str, on_hub: bool) -> str:
    """What to type for a directory that is not there."""
    if on_hub and path.count("/") == 1 and not path.startswith((".", "/", "~")):
        here = path.rpartition("/")[2]
        return f"hf download {path} --local-dir {here}, then {f'{name} ' if name.startswith('-') else ''}{here}"
    return f"ls -d {os.path.dirname(path) or '.'}/*"
