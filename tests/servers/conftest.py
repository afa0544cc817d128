"""Real servers: only where they were asked for (`make test-servers`), since each start takes a minute and 4 GB of memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import environments
from tests.servers.running import OVERLAY, Bench

ASKED = os.environ.get("GPUDIAG_SERVER_TESTS")

if not ASKED:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def models() -> Path:
    """The tiny model and its drafter, made once with vLLM's torch and safetensors."""
    place = environments.home() / f"models-{environments.digest('tiny_model.py')}"
    if not (place / environments.READY).exists():
        python = environments.make("vllm") / "bin" / "python"
        subprocess.run([str(python), str(environments.HERE / "tiny_model.py"), str(place)], check=True)
        (place / environments.READY).touch()
    return place


@pytest.fixture
def bench(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Where servers are started: a model, a directory, a state directory of its own. A damaged package goes afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield Bench(models=models, directory=tmp_path)
    if (tmp_path / OVERLAY).is_symlink():
        shutil.rmtree((tmp_path / OVERLAY).resolve())
