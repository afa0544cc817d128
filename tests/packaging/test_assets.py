"""Finding what is shipped beside the code, from a checkout."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import get_args

import pytest

from gpudiag import assets
from gpudiag.assets import AssetError, AssetKind, asset


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one real file of each kind among what is none."""
    (tmp_path / "gpudiag").mkdir()
    (tmp_path / "pyproject.toml").touch()
    for name in (
        "probes/check_module.py",
        "probes/__pycache__/check_module.cpython-311.pyc",
        "probes/README.md",
        "kernels/cuda/copy.cu",
        "kernels/triton/add.py",
        "kernels/README.md",
        "runbooks/GPD301-rank-missing-at-collective.md",
        "torchside/sample/step.py",
        "outside.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(resources, "files", tmp_path.joinpath)
    return tmp_path


def test_lists_what_is_an_asset_and_nothing_else(checkout: Path) -> None:
    found = {kind: [p.relative_to(checkout / kind).as_posix() for p in assets.assets(kind)] for kind in get_args(AssetKind)}
    assert found == {
        "probes": ["check_module.py"],
        "kernels": ["cuda/copy.cu", "triton/add.py"],
        "runbooks": ["GPD301-rank-missing-at-collective.md"],
        "torchside": ["sample/step.py"],
    }


def test_finds_one_by_its_path(checkout: Path) -> None:
    assert asset("kernels", "cuda/copy.cu") == checkout / "kernels" / "cuda" / "copy.cu"


@pytest.mark.parametrize("name", ["", ".", "copy.cu", "README.md", "../outside.py", "/etc/passwd", "missing.py"])
@pytest.mark.usefixtures("checkout")
def test_refuses_what_is_no_asset(name: str) -> None:
    with pytest.raises(AssetError, match="has no file"):
        asset("probes", name)


def test_says_when_the_installation_is_incomplete(checkout: Path) -> None:
    (checkout / "pyproject.toml").unlink()
    with pytest.raises(AssetError, match="lacks its probes") as error:
        assets.assets("probes")
    assert "pip install" in error.value.help
