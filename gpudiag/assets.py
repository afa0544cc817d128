"""Finds the files that are shipped beside the code: probes, programs for torch, kernel sources and runbooks."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

from gpudiag.errors import GpudiagError

AssetKind = Literal["probes", "kernels", "runbooks", "torchside"]

_SUFFIXES: dict[AssetKind, frozenset[str]] = {
    "probes": frozenset({".py"}),
    "kernels": frozenset({".cu", ".cuh", ".py"}),
    "runbooks": frozenset({".md"}),
    "torchside": frozenset({".py"}),
}


class AssetError(GpudiagError):
    """A file that belongs to gpudiag is not where this installation should have it."""


def asset(kind: AssetKind, name: str) -> Path:
    """The file `name` of one kind, as a path relative to its directory: 'cuda/copy.cu'.

    Raises AssetError if gpudiag has no such file; `name` is looked up among `assets(kind)`, so it cannot lead elsewhere.
    """
    directory = _directory(kind)
    for path in _files(directory, kind):
        if path.relative_to(directory).as_posix() == name:
            return path
    raise AssetError(f"gpudiag has no file {name!r} under {kind}", help=f"list them: ls {directory}")


def assets(kind: AssetKind) -> tuple[Path, ...]:
    """All files of one kind, sorted; empty if there are none.

    README files and what pip's byte-compilation leaves (`__pycache__`) are not assets.
    """
    return _files(_directory(kind), kind)


def _files(directory: Path, kind: AssetKind) -> tuple[Path, ...]:
    suffixes = _SUFFIXES[kind]
    return tuple(sorted(p for p in directory.rglob("*") if p.suffix in suffixes and p.name != "README.md" and p.is_file()))


def _directory(kind: AssetKind) -> Path:
    """Where one kind of file lies: in `gpudiag/_assets` of an installed wheel, or at the top of a checkout."""
    package = Path(str(resources.files("gpudiag")))
    installed = package / "_assets" / kind
    if installed.is_dir():
        return installed
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        return checkout / kind
    raise AssetError(
        f"this installation of gpudiag lacks its {kind}",
        help="install it again from its repository: pip install --force-reinstall .",
    )
