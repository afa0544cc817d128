"""Which layers stored states are: those of a real forward pass, and twins that are moved, mixed up or of another target."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpudiag.assets import asset
from gpudiag.cli import main
from tests.drafter import tiny
from tests.drafter.conftest import Pair

pytestmark = pytest.mark.torch

EXTRACT = """
import sys
sys.path.insert(0, sys.argv[1])
import json, torch
from eagle3.target import open_target
from eagle3.tensors import write_file
target = open_target(sys.argv[2], torch.device("cpu"), None)
ids = torch.tensor(json.loads(sys.argv[4]))
states, normed = target.states(ids[None], {1, 4, 5, 8})
rows = torch.stack([states[i][0] for i in (1, 4, 5, 8)], 1)
moved = int(sys.argv[5])
write_file(sys.argv[3], {"token_ids": ids, "hidden_states": rows.roll(moved, 0).bfloat16()})
"""


def extract(pair: Pair, target: Path, path: Path, *, moved: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    place = str(asset("torchside", "eagle3/tensors.py").parent.parent)
    ids = json.dumps(pair.texts[0].ids)
    subprocess.run([pair.python, "-B", "-c", EXTRACT, place, str(target), str(path), ids, str(moved)], check=True, timeout=100)


def audited(pair: Pair, states: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    arguments = ["--target", str(pair.target), "--forward", "--python", pair.python, "--json", *more]
    main.run(["drafter", "audit-states", str(states), *arguments])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_states_are_named_by_their_layers(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extract(pair, pair.target, tmp_path / "states" / "a.safetensors")
    found = audited(pair, tmp_path / "states", capsys)
    (layers,) = [fact["value"] for fact in found["facts"] if fact["name"] == "layers"]
    assert layers.startswith("input of 1, input of 4, input of 5, output of the last layer, 8; ")
    assert found["items"] == []


@pytest.mark.parametrize(("meant", "names"), [("1,4,5", []), ("2,4,5", ["other layers than meant"])])
def test_layers_that_were_meant(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], meant: str, names: list[str]
) -> None:
    extract(pair, pair.target, tmp_path / "states" / "a.safetensors")
    items = audited(pair, tmp_path / "states", capsys, "--expect", meant)["items"]
    assert [item["name"] for item in items] == names


def test_states_of_the_tokens_beside(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extract(pair, pair.target, tmp_path / "states" / "a.safetensors", moved=1)
    assert [item["name"] for item in audited(pair, tmp_path / "states", capsys)["items"]] == ["moved states"]


def test_states_of_another_target(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tiny.target(tmp_path / "other", seed=4)
    extract(pair, other, tmp_path / "states" / "a.safetensors")
    assert [item["name"] for item in audited(pair, tmp_path / "states", capsys)["items"]] == ["unknown layer"]


def test_forward_needs_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "states").mkdir()
    assert main.run(["drafter", "audit-states", str(tmp_path / "states"), "--forward"]) == 2
    assert "--target DIR" in capsys.readouterr().err
