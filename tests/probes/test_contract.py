"""What every probe promises: old syntax, a docstring that says its needs, one JSON object, and nothing of ours imported."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudiag.assets import assets

PROBES = [p for p in assets("probes") if p.suffix == ".py"]
ARGUMENTS = {
    "import_module": ["--limit", "20", "json"],
    "run_gpu_program": ["--capability", "90", "/nonexistent.cu", "GPU-0"],
}


def by_name(path: Path) -> str:
    return path.stem


def test_there_are_some() -> None:
    assert {p.stem for p in PROBES} >= {"describe_environment", "verify_packages", "import_module", "read_gpus"}


@pytest.mark.parametrize("probe", PROBES, ids=by_name)
def test_it_reads_as_python_3_9(probe: Path) -> None:
    ast.parse(probe.read_text(), feature_version=(3, 9))


@pytest.mark.parametrize("probe", PROBES, ids=by_name)
def test_it_says_what_it_needs(probe: Path) -> None:
    text = ast.get_docstring(ast.parse(probe.read_text())) or ""
    assert [word for word in ("needs:", "timeout:", "writes:") if word not in text] == []


@pytest.mark.parametrize("probe", PROBES, ids=by_name)
def test_it_imports_the_standard_library_alone(probe: Path) -> None:
    tree = ast.parse(probe.read_text())
    names = {a.name.partition(".")[0] for n in tree.body if isinstance(n, ast.Import) for a in n.names}
    assert names <= sys.stdlib_module_names
    assert not [n for n in tree.body if isinstance(n, ast.ImportFrom)]


@pytest.mark.parametrize("probe", PROBES, ids=by_name)
def test_it_answers_with_one_object_and_status_0(probe: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-B", "-", *ARGUMENTS.get(probe.stem, [])],
        input=probe.read_bytes(),
        capture_output=True,
        cwd="/",
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stdout.splitlines()
    answer: dict[str, Any] = json.loads(line)
    assert (answer["schema"], answer["probe"]) == ("gpudiag.probe/1", probe.stem)
    assert isinstance(answer["ok"], bool)
