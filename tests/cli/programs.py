"""Runs gpudiag as a user does: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT


def environment(**changes: str) -> dict[str, str]:
    """The test's environment without what would colour or resize the output."""
    dropped = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "GPUDIAG_DEBUG", "PYTHONPATH"}
    return {k: v for k, v in os.environ.items() if k not in dropped} | {"PYTHONPATH": str(ROOT)} | changes


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gpudiag", *arguments]


def gpudiag(*arguments: str, cwd: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )
