"""Which interpreter computes: one that is named is asked where its prefix does not show torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpudiag.drafter import torch_child
from gpudiag.errors import UsageError


def wrapper(place: Path, torch: str) -> str:
    """An interpreter that has this torch by PYTHONPATH alone, before any other."""
    (place / "site" / "torch").mkdir(parents=True)
    (place / "site" / "torch" / "__init__.py").write_text(torch)
    script = place / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={place}/site exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_a_wrapper_whose_torch_is_on_pythonpath_is_taken(tmp_path: Path) -> None:
    python = wrapper(tmp_path, "")
    assert torch_child.choose(python, "drafter replay") == python


def test_a_wrapper_whose_torch_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no torch"):
        torch_child.choose(wrapper(tmp_path, "raise ImportError('libtorch_cuda.so')"), "drafter replay")
