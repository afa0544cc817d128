"""gpudiag drafter replay and train as a user runs them: refusals in one line, and the whole way over files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudiag.cli import main
from gpudiag.doctor.interpreter import has_any
from gpudiag.drafter import texts, train
from gpudiag.errors import GpudiagError, NotInspectableError, UsageError
from tests.cli.test_schema import problems
from tests.drafter import tiny
from tests.drafter.conftest import Pair

LINE = '{"ids": [1, 2, 3, 4, 5], "prompt": 2}\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("draft", "target"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"num_hidden_layers": 8, "vocab_size": 24}')
    (tmp_path / "texts.jsonl").write_text(LINE)
    return tmp_path


def refused(place: Path, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    given = ["drafter", "replay", str(place / "draft"), str(place / "texts.jsonl"), "--target", str(place / "target"), *arguments]
    assert main.run(given) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.mark.skipif(has_any(sys.executable, ("torch",)), reason="torch is here")
def test_without_torch_one_line_says_how_to_get_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    err = refused(place, capsys, "--python", sys.executable)
    assert "computes with torch in a child process" in err
    assert "pip install 'gpudiag[drafter]'" in err
    assert len(err.splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--measured", "many:0.5"), "no number of rounds"),
        (("--measured", "100:0.5,0.6"), "falling share"),
        (("--measured", "100:1.5"), "falling share"),
        (("--layers", "2,four"), "no list of layers"),
        (("--python", "/nowhere/python"), "no program there"),
        (("--steps", "0"), "0 is not in the range"),
    ],
)
def test_bad_arguments(place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(place, capsys, *arguments)


@pytest.mark.torch
def test_texts_with_more_drafts_a_round_than_are_replayed(pair: Pair, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "texts.jsonl").write_text('{"ids": [1, 2, 3, 4, 5], "prompt": 2, "rounds": [40]}\n')
    assert "--steps 16 replays the first ones" in refused(place, capsys, "--python", pair.python)


def test_no_such_directory(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["drafter", "replay", str(place / "other"), "x", "--target", str(place / "target")]) == 2
    assert "no such directory" in capsys.readouterr().err


@pytest.mark.torch
def test_a_file_that_is_no_checkpoint(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tiny.changed(pair.draft(), tmp_path / "broken")
    (broken / "model.safetensors").write_bytes((broken / "model.safetensors").read_bytes()[:400])
    kept = tmp_path / "texts.jsonl"
    kept.write_text("".join(texts.lines(pair.texts[:2])))
    code = main.run(["drafter", "replay", str(broken), str(kept), "--target", str(pair.target), "--python", pair.python])
    err = capsys.readouterr().err
    assert code in (2, 4)
    assert "Traceback" not in err
    assert "model.safetensors" in err


@pytest.mark.torch
def test_the_report_over_a_file(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "texts.jsonl"
    made = tiny.speculated(
        pair.python, tmp_path, pair.target, pair.draft(), count=10, length=40, seed=9, fault={"feedback": True}
    )
    kept.write_text("".join(texts.lines(made)))
    given = ["drafter", "replay", str(pair.draft()), str(kept), "--target", str(pair.target), "--python", pair.python]
    assert main.run([*given, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"]["code"] == "GPD608"
    assert report["replay"]["measured_from"] == "rounds"
    assert report["replay"]["learnt_layers"] == [2, 4, 5]
    assert main.run(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert problems(report, schema, schema["$defs"]) == []


@pytest.mark.parametrize(
    ("config", "error", "said"),
    [
        (None, UsageError, "--from"),
        ("[", NotInspectableError, "is no JSON: Expecting value"),
        ("[]", NotInspectableError, "no JSON object"),
    ],
)
def test_a_drafter_to_begin_with_that_cannot_be_read(
    place: Path, config: str | None, error: type[GpudiagError], said: str
) -> None:
    start = place / "start"
    start.mkdir()
    if config is not None:
        (start / "config.json").write_text(config)
    plan = train.Plan(target=str(place / "target"), out=place / "out", start=str(start), steps=1)
    with pytest.raises(error, match=said) as raised:
        train.train(plan, texts.read(place / "texts.jsonl"), python=sys.executable, progress=lambda _: None)
    assert str(start) in raised.value.message
    assert str(start) in raised.value.help


def lengths(result: dict[str, Any]) -> float:
    """Tokens a round on the texts that were kept back."""
    replayed = result["after"]["replayed"]
    return 1 + float(sum(replayed["at"])) / float(replayed["rounds"])


@pytest.mark.torch
def test_training_goes_on_where_it_ended_and_lifts_the_drafter(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "texts.jsonl"
    kept.write_text("".join(texts.lines(pair.texts)))
    shape = [
        "--batch",
        "4",
        "--rate",
        "0.01",
        "--context",
        "64",
        "--vocabulary",
        "16",
        "--device",
        "cpu",
        "--python",
        pair.python,
    ]
    given = ["drafter", "train", str(kept), "--target", str(pair.target), "--out", str(tmp_path / "out"), "--json", *shape]
    assert main.run([*given, "--steps", "1"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["trained"]["steps"], first["before"]) == (1, None)
    assert main.run([*given, "--steps", "90", "--resume"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["trained"]["steps"] == 90
    assert second["trained"]["loss"] < 0.8 * first["trained"]["loss"]
    assert lengths(second) > 1.2 * lengths(first)
    assert second["after"]["texts"] == 3
    assert {p.name for p in (tmp_path / "out" / "vllm-eagle3").iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.torch
def test_two_ranks_learn_together(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "texts.jsonl"
    kept.write_text("".join(texts.lines(pair.texts)))
    given = ["drafter", "train", str(kept), "--target", str(pair.target), "--out", str(tmp_path / "out"), "--python", pair.python]
    assert (
        main.run([*given, "--json", "--steps", "6", "--batch", "2", "--device", "cpu", "--ranks", "2", "--vocabulary", "16"]) == 0
    )
    trained = json.loads(capsys.readouterr().out)["trained"]
    assert (trained["steps"], trained["ranks"]) == (6, 2)


@pytest.mark.torch
def test_there_is_nothing_to_go_on_with(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "texts.jsonl"
    kept.write_text("".join(texts.lines(pair.texts[:2])))
    given = ["drafter", "train", str(kept), "--target", str(pair.target), "--out", str(tmp_path / "out"), "--python", pair.python]
    assert main.run([*given, "--resume"]) == 2
    assert "holds no training" in capsys.readouterr().err
