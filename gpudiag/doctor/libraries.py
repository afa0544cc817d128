"""The compiled libraries below directories, and which GPU code they hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gpudiag.doctor import fatbin
from gpudiag.model.library import Library

_SUFFIXES: Final = (".so", ".fatbin", ".cubin")
_MAX_FILES: Final = 20_000
_SKIPPED: Final = frozenset({"__pycache__", ".git", "node_modules"})


def scan(places: Iterable[str]) -> tuple[Library, ...]:
    """Every file with GPU code among these files and below these directories, each real file once, by path.

    A file that cannot be read is left out when it was found in a directory, and raises OSError when it was named.
    """
    found: dict[str, Library] = {}
    for place in places:
        path = Path(place)
        if path.is_dir():
            for file in files(path):
                _add(found, file)
        else:
            library = fatbin.scan(path)
            if library is not None:
                found[os.path.realpath(path)] = library
    return tuple(sorted(found.values(), key=lambda library: library.path))


def _add(found: dict[str, Library], file: Path) -> None:
    real = os.path.realpath(file)
    if real in found:
        return
    try:
        library = fatbin.scan(file)
    except (OSError, ValueError):
        # Unreadable, or shrunk while it was mapped: not ours to judge here.
        return
    if library is not None:
        found[real] = library


def files(directory: Path) -> Iterator[Path]:
    """Shared libraries, fatbins and cubins below a directory, by name, at most 20,000."""
    left = _MAX_FILES
    for top, directories, names in os.walk(directory):
        directories[:] = sorted(d for d in directories if d not in _SKIPPED)
        for name in sorted(names):
            if name.endswith(_SUFFIXES) or ".so." in name:
                yield Path(top, name)
                left -= 1
                if not left:
                    return
