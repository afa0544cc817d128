"""What a source tree asks for before it can be built, and which headers the compiler lacks."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpudiag.doctor.reads import attempt, bounded
from gpudiag.model.build import SourceTree
from gpudiag.model.reading import Reading, Unavailable

_HEADERS: Final = {
    "numa.h": re.compile(r"\bnuma\b|mscclpp", re.IGNORECASE),
    "infiniband/verbs.h": re.compile(r"ibverbs|mscclpp", re.IGNORECASE),
}
"""What in CMake's text calls for a header: libnuma and libibverbs are those of mscclpp, which sgl-kernel up to 0.3 builds."""
_MINIMUM: Final = re.compile(r"cmake_minimum_required\s*\(\s*VERSION\s+([\d.]+)", re.IGNORECASE)
_POLICY: Final = re.compile(r"cmake_policy\s*\(\s*SET\s+(CMP\d{4})", re.IGNORECASE)
_COMMENT: Final = re.compile(r"#[^\n]*")
_TEXT_BYTES: Final = 4 << 20
_LIMIT_S: Final = 20.0


def source_tree(directory: Path | str) -> SourceTree:
    """The needs of a tree. Raises OSError without a pyproject.toml, ValueError for one that does not parse."""
    place = Path(directory)
    project = tomllib.loads(bounded(place / "pyproject.toml", _TEXT_BYTES).decode("utf-8", "replace"))
    system = project.get("build-system", {})
    cmake = "\n".join(_cmake(place))
    headers = tuple(name for name, pattern in _HEADERS.items() if pattern.search(cmake))
    minimum = _MINIMUM.search(cmake)
    return SourceTree(
        path=str(place),
        name=project.get("project", {}).get("name"),
        requires=tuple(str(r) for r in system.get("requires", ())),
        cmake_minimum=minimum[1] if minimum else None,
        policies=tuple(sorted(set(_POLICY.findall(cmake)))),
        headers=headers,
        missing_headers=missing(headers),
    )


def _cmake(place: Path) -> Iterable[str]:
    """The text of the tree's own CMake files, without comments."""
    for path in (place / "CMakeLists.txt", *sorted(place.glob("cmake/*.cmake"))):
        if path.is_file():
            yield _COMMENT.sub("", bounded(path, _TEXT_BYTES).decode("utf-8", "replace"))


def missing(headers: tuple[str, ...]) -> Reading[tuple[str, ...]]:
    """Headers that the C++ compiler does not find, with its own search path and CPATH."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return Unavailable(reason="no C++ compiler on PATH", help="apt install g++, or dnf install gcc-c++")
    return attempt(lambda: tuple(h for h in headers if not _finds(compiler, h)))


def _finds(compiler: str, header: str) -> bool:
    """Preprocess one include. Raises OSError if the compiler does not answer in time."""
    try:
        ended = subprocess.run(
            [compiler, "-E", "-x", "c++", "-", "-o", "/dev/null"],
            input=f"#include <{header}>\n",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{compiler} did not answer within {_LIMIT_S:g} s") from error
    return ended.returncode == 0
