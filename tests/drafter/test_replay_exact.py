"""The replay against a loop that drafts and verifies round by round, written apart from it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.assets import asset
from gpudiag.doctor import drafter_files
from gpudiag.drafter.replay import Order, replay
from gpudiag.drafter.train import train
from gpudiag.model.replay import Replay, Text
from gpudiag.rules.drafter import replayed
from tests.drafter import tiny
from tests.drafter.conftest import Pair, quiet

pytestmark = pytest.mark.torch

FC_NORMS = {f"fc_norm.{i}.weight": ((tiny.WIDTH,), [0.5 + 0.1 * n for n in range(tiny.WIDTH)]) for i in range(3)}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "post-norm feedback": {"norm_output": True},
    "normed residual": {"norm_before_residual": True},
    "fc_norm and post-norm feedback": {"tensors": FC_NORMS, "fc_norm": True, "norm_output": True},
}


def replayed_rounds(pair: Pair, draft: Path, texts: tuple[Text, ...], **order: Any) -> Replay:
    chosen = Order(draft=str(draft), target=str(pair.target), device="cpu", **{"steps": 3, **order})
    return replay(chosen, texts, python=pair.python, progress=quiet)


@pytest.mark.parametrize("form", FORMS)
def test_every_round_of_a_chain(pair: Pair, tmp_path: Path, form: str) -> None:
    draft = tiny.changed(pair.draft(), tmp_path / "draft", **FORMS[form])
    texts = tiny.speculated(pair.python, tmp_path, pair.target, draft, count=5, length=30, seed=7)
    found = replayed_rounds(pair, draft, texts, healthy_only=True)
    assert found.measured == found.replayed
    assert found.candidates[0].agrees == 1.0
    assert found.own_choice == 1.0
    assert found.replayed.length > 1.2, "a drafter that is never right would agree by itself"


def test_every_round_of_a_tree(pair: Pair, tmp_path: Path) -> None:
    tree: dict[str, Any] = {"steps": 3, "topk": 2, "nodes": 5}
    texts = tiny.speculated(pair.python, tmp_path, pair.target, pair.draft(), count=3, length=20, seed=8, **tree)
    found = replayed_rounds(pair, pair.draft(), texts, topk=2, draft_tokens=6, healthy_only=True)
    assert found.measured == found.replayed
    assert found.candidates[0].agrees == 1.0
    chain = replayed_rounds(pair, pair.draft(), tuple(Text(ids=t.ids, prompt=t.prompt) for t in texts), healthy_only=True)
    assert found.replayed.length > chain.replayed.length, "a tree that is no better than a chain shows nothing"


@pytest.mark.parametrize("dialect", ["sglang", "speculators"])
def test_the_dialects_are_one_drafter(pair: Pair, dialect: str) -> None:
    texts = pair.texts[:6]
    one, other = (replayed_rounds(pair, pair.draft(d), texts, healthy_only=True) for d in ("vllm", dialect))
    assert one.replayed == other.replayed
    assert one.learnt_layers == other.learnt_layers == (2, 4, 5)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "layers": ({"layers": [1, 3, 4]}, "GPD602"),
    "d2t": ({"d2t": True}, "GPD603"),
    "feedback": ({"feedback": True}, "GPD608"),
    "embedding": ({"embedding": True}, "GPD610"),
    "shift": ({"shift": 0}, "GPD614"),
    "norm": ({"skip": True}, "GPD608"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(pair: Pair, tmp_path: Path, name: str) -> None:
    fault, code = FAULTS[name]
    # What is only alike takes more rounds to tell.
    count = 8 if name == "embedding" else 5
    texts = tiny.speculated(pair.python, tmp_path, pair.target, pair.draft(), count=count, length=30, seed=9, fault=fault)
    found = replayed_rounds(pair, pair.draft(), texts)
    named = [f.code for f in replayed.evaluate(found)]
    assert named == [code], found.candidates[:3]


def test_a_healthy_server_is_not_accused(pair: Pair, tmp_path: Path) -> None:
    texts = tiny.speculated(pair.python, tmp_path, pair.target, pair.draft(), count=5, length=30, seed=9)
    found = replayed_rounds(pair, pair.draft(), texts)
    assert found.candidates[0].name == "as trained"
    assert not [f for f in replayed.evaluate(found) if f.severity == "error"]


def test_a_window_is_what_each_token_sees(pair: Pair) -> None:
    program = Path(__file__).parent / "programs" / "windowed.py"
    ran = subprocess.run(
        [pair.python, str(program), str(asset("torchside", "eagle3/chain.py").parent.parent)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    wrong, changed = map(float, ran.stdout.split())
    assert wrong < 1e-5
    assert changed > 0.01, "a window that leaves nothing out shows nothing"


def test_long_texts_are_replayed_with_a_shorter_view(pair: Pair) -> None:
    texts = tuple(Text(ids=(t.ids * 40)[:460], prompt=t.prompt) for t in pair.texts[:5])
    (found,) = replayed_rounds(pair, pair.draft(), texts).contexts
    assert (found.window, found.since, found.texts) == (192, 384, 5)
    assert found.low is not None
    assert replayed_rounds(pair, pair.draft(), texts, healthy_only=True).contexts == ()
    short = tuple(Text(ids=t.ids[:383], prompt=t.prompt) for t in texts)
    assert replayed_rounds(pair, pair.draft(), short).contexts == ()


def test_a_drafter_of_all_ids_has_no_map(pair: Pair, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(tiny.plan(pair.target, tmp_path), steps=2, vocabulary=tiny.VOCABULARY)
    draft = Path(train(plan, pair.texts, python=pair.python, progress=quiet).drafters["vllm"])
    names = {t.name for t in drafter_files.drafter(str(draft), None).tensors}
    assert "lm_head.weight" in names
    assert not {"d2t", "t2d"} & names
    assert {"d2t", "t2d"} <= {t.name for t in drafter_files.drafter(str(pair.draft()), None).tensors}
    assert replayed_rounds(pair, draft, pair.texts[:3], healthy_only=True).covered == 1.0
