"""Builds the distribution from a copy of the checkout and installs it in every way that people do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT, project_files

SAMPLES = {
    "probes": "check_sample.py",
    "kernels": "cuda/sample.cu",
    "runbooks": "GPD999-sample.md",
    "torchside": "sample/step.py",
}
"""One file of each kind that the copy gets besides what the checkout has, so that no test passes on an empty directory."""


@dataclass(frozen=True)
class Installation:
    """An environment that has gpudiag. `home` is the checkout of an editable installation, else its site-packages."""

    python: Path
    home: Path

    def run(self, code: str, *, cwd: Path, **environ: str) -> str:
        """Standard output of a Python program in this environment."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        result = subprocess.run(
            [self.python, "-c", code],
            cwd=cwd,
            env=clean | environ,
            text=True,
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        )
        return result.stdout

    def evaluate(self, expression: str, *, imports: str, cwd: Path, **environ: str) -> Any:
        """The value of a Python expression in this environment; it has to fit into JSON."""
        code = f"import json, {imports}\nprint(json.dumps({expression}))"
        return json.loads(self.run(code, cwd=cwd, **environ))


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project's files, with one sample of each kind of asset."""
    copy = tmp_path_factory.mktemp("source") / "gpudiag"
    for path in project_files():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, copy / path)
    for kind, name in SAMPLES.items():
        sample = copy / kind / name
        sample.parent.mkdir(parents=True, exist_ok=True)
        sample.write_text("")
    return copy


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], Path]:
    """Builds one distribution ('sdist' or 'wheel') of a source tree."""

    def _build(what: str, tree: Path) -> Path:
        out = tmp_path_factory.mktemp(what)
        # Without isolation nothing is downloaded: the backend is one of the dev dependencies.
        command = [sys.executable, "-m", "build", "--no-isolation", f"--{what}", "--outdir", str(out), str(tree)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
        (built,) = out.iterdir()
        return built

    return _build


@pytest.fixture(scope="session")
def sdist(build: Callable[[str, Path], Path], source: Path) -> Path:
    return build("sdist", source)


@pytest.fixture(scope="session")
def wheel(build: Callable[[str, Path], Path], source: Path) -> Path:
    return build("wheel", source)


@pytest.fixture(scope="session")
def wheel_of_sdist(build: Callable[[str, Path], Path], sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    unpacked = tmp_path_factory.mktemp("unpacked")
    # tarfile has no filter before 3.11.4.
    subprocess.run(["tar", "-xf", sdist, "-C", unpacked], check=True, timeout=60)
    (tree,) = unpacked.iterdir()
    return build("wheel", tree)


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Installation]:
    """Makes an environment and installs one thing into it, with the arguments that pip gets."""

    def _install(*arguments: str | Path, home: Path | None = None) -> Installation:
        prefix = tmp_path_factory.mktemp("venv")
        venv.create(prefix, symlinks=True)
        paths = sysconfig.get_paths(vars={"base": str(prefix), "platbase": str(prefix)}, scheme="venv")
        packages, python = Path(paths["purelib"]), Path(paths["scripts"]) / "python"
        # Dependencies come from the environment that runs the tests. A path added by a .pth file is searched last, and
        # .pth files in it are not read, so this environment's own gpudiag stays out of sight.
        (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
        command += ["--no-build-isolation", "--ignore-installed", *map(str, arguments)]
        subprocess.run(command, check=True, timeout=60)
        return Installation(python=python, home=home or packages)

    return _install


@pytest.fixture(scope="session", params=["wheel", "wheel of the sdist", "editable"])
def installation(request: pytest.FixtureRequest, install: Callable[..., Installation]) -> Installation:
    """gpudiag as a user may have it."""
    if request.param == "editable":
        source: Path = request.getfixturevalue("source")
        return install("--editable", source, home=source)
    return install(request.getfixturevalue(request.param.replace(" of the ", "_of_")))
