"""Copies of the demo under other names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.demo.renamed import Renamed, rename_scripts


@pytest.fixture
def renamed(tmp_path: Path) -> Renamed:
    """A copy whose names are different in every run."""
    return rename_scripts(tmp_path / "renamed", random.SystemRandom())
