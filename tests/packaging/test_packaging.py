"""The distribution holds gpudiag and nothing else that Python could import.

A top-level `kernels` would hide the package of that name which SGLang imports.
"""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudiag import __version__
from tests.packaging.conftest import SAMPLES, Installation
from tests.support.checkout import ROOT, project_files

pytestmark = pytest.mark.packaging

ASSET_KINDS = sorted(SAMPLES)
NOT_IMPORTABLE = [*ASSET_KINDS, "tests", "benchmarks"]


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("kind", ASSET_KINDS)
def test_asset_directories_are_no_packages(kind: str) -> None:
    assert not [p for p in project_files() if p.parts[0] == kind and p.name == "__init__.py"]


def test_wheel_has_one_top_level_name(wheel: Path) -> None:
    top = {name.partition("/")[0] for name in names(wheel)}
    (info,) = (name for name in top if name.endswith(".dist-info"))
    assert top == {"gpudiag", info, info.replace(".dist-info", ".data")}


def test_wheel_ships_the_manual_page_and_nothing_else_beside_the_code(wheel: Path) -> None:
    (page,) = (name for name in names(wheel) if ".data/" in name)
    assert page.endswith(".data/data/share/man/man1/gpudiag.1")


@pytest.mark.parametrize("what", ["wheel", "sdist"])
def test_two_builds_are_the_same_to_the_byte(
    what: str, source: Path, build: Callable[[str, Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    copy = tmp_path / "elsewhere"
    shutil.copytree(source, copy, copy_function=shutil.copy, ignore=shutil.ignore_patterns("__pycache__"))
    first, second = build(what, source), build(what, copy)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_wheel_ships_the_code_but_not_the_build_hook(wheel: Path) -> None:
    code = {p.as_posix() for p in project_files() if p.parts[0] == "gpudiag"} - {"gpudiag/_build_hook.py"}
    assert code == {n for n in names(wheel) if n.startswith("gpudiag/") and not n.startswith("gpudiag/_assets/")}


@pytest.mark.parametrize("kind", ASSET_KINDS)
def test_wheel_ships_every_asset(kind: str, wheel: Path) -> None:
    expected = {p.as_posix() for p in project_files() if p.parts[0] == kind} | {f"{kind}/{SAMPLES[kind]}"}
    prefix = "gpudiag/_assets/"
    assert expected == {n.removeprefix(prefix) for n in names(wheel) if n.startswith(f"{prefix}{kind}/")}


def test_sdist_builds_the_same_wheel(wheel: Path, wheel_of_sdist: Path) -> None:
    assert names(wheel) == names(wheel_of_sdist)


def test_installing_needs_no_server_and_no_torch(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        fields = email.message_from_bytes(archive.read(metadata))
    always = {re.split("[<>]", r)[0] for r in fields.get_all("Requires-Dist", []) if "extra ==" not in r}
    assert always == {"ahocorasick-rs", "click", "msgspec", "nvidia-ml-py", "psutil", "py-spy", "pyelftools", "rich", "textual"}
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields.get_all("License-File") == ["LICENSE"]


@pytest.mark.parametrize("name", NOT_IMPORTABLE)
def test_nothing_but_gpudiag_is_importable(name: str, installation: Installation, tmp_path: Path) -> None:
    found = "[importlib.util.find_spec(n) is not None for n in ('gpudiag', " + repr(name) + ")]"
    assert installation.evaluate(found, imports="importlib.util", cwd=tmp_path) == [True, False]


def test_a_package_called_kernels_wins_even_in_our_checkout(tmp_path: Path, installation: Installation) -> None:
    theirs = tmp_path / "kernels" / "__init__.py"
    theirs.parent.mkdir()
    theirs.write_text("")
    found = installation.evaluate("kernels.__file__", imports="kernels", cwd=ROOT, PYTHONPATH=str(tmp_path))
    assert found == str(theirs)


@pytest.mark.parametrize("kind", ASSET_KINDS)
def test_assets_are_found(kind: str, installation: Installation, tmp_path: Path) -> None:
    name = SAMPLES[kind]
    expression = f"[str(gpudiag.assets.asset({kind!r}, {name!r})), [str(p) for p in gpudiag.assets.assets({kind!r})]]"
    one, every = installation.evaluate(expression, imports="gpudiag.assets", cwd=tmp_path)
    assert Path(one).is_relative_to(installation.home)
    assert Path(one).parts[-len(Path(name).parts) - 1 :] == (kind, *Path(name).parts)
    expected = {p for p in project_files() if p.parts[0] == kind and p.name != "README.md"} | {Path(kind, name)}
    assert len(every) == len(expected)
    assert one in every


def test_an_editable_installation_makes_no_copies(source: Path, installation: Installation, tmp_path: Path) -> None:
    where = installation.evaluate("gpudiag.__file__", imports="gpudiag", cwd=tmp_path)
    assert where == str(installation.home / "gpudiag" / "__init__.py")
    assert not (source / "gpudiag" / "_assets").exists()


def test_the_command_runs(installation: Installation, tmp_path: Path) -> None:
    command = installation.python.parent / "gpudiag"
    said = subprocess.run([command, "--version"], cwd=tmp_path, text=True, stdout=subprocess.PIPE, check=True, timeout=60)
    assert said.stdout == f"gpudiag {__version__}\n"
