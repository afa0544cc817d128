"""What every test may rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkout import ROOT


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT
