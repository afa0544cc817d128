"""A target and a drafter that was trained for it, made once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpudiag.drafter.train import train
from gpudiag.model.replay import Text, Trained
from tests.drafter import tiny
from tests.programs.harness import torch_python


@dataclass(frozen=True)
class Pair:
    """A target, drafters in each dialect that learnt on its texts, and what it learnt from."""

    python: str
    scratch: Path
    target: Path
    texts: tuple[Text, ...]
    trained: Trained

    def draft(self, dialect: str = "vllm") -> Path:
        return Path(self.trained.drafters[dialect])


def quiet(event: dict[str, Any]) -> None:
    """Progress that nobody looks at."""


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    python = torch_python()
    if python is None:
        pytest.skip("needs an interpreter with torch")
    scratch = tmp_path_factory.mktemp("pair")
    target = tiny.target(scratch / "target")
    texts = tiny.speculated(python, scratch, target, None, count=24, length=24, seed=5)
    trained = train(tiny.plan(target, scratch / "trained"), texts, python=python, progress=quiet)
    return Pair(python=python, scratch=scratch, target=target, texts=texts, trained=trained)
