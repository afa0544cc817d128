"""Build tools on PATH and their versions."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Final

TOOLS: Final = ("nvcc", "ninja", "cmake", "g++")
_LIMIT_S: Final = 5.0
_MAX_TEXT: Final = 200


def tools() -> dict[str, str]:
    """The line of `TOOL --version` that has the version, of each tool that runs; its path stands in front."""
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        lines = list(pool.map(_version, TOOLS))
    return {tool: line for tool, line in zip(TOOLS, lines, strict=True) if line}


def _version(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        return ""
    try:
        said = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = said.stdout.splitlines()
    # nvcc says its release on the fourth line, the others on the first.
    line = next((line for line in lines if "release" in line), lines[0] if lines else "")
    return f"{path}: {line.strip()[:_MAX_TEXT]}" if line and said.returncode == 0 else ""
