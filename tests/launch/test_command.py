"""gpudiag launch as a user types it, with an engine that takes its options and starts nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.cli.main import run
from tests.doctor.checkpoints import drafter, plain, target, weights

ENGINE = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
for name in ("--model-path", "--port", "--tp-size", "--device", "--attention-backend", "--sampling-backend",
             "--max-total-tokens", "--watchdog-timeout", "--speculative-algorithm", "--speculative-draft-model-path",
             "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens",
             "--speculative-draft-model-quantization", "--max-running-requests", "--api-key"):
    parser.add_argument(name)
for name in ("--disable-overlap-schedule", "--disable-radix-cache", "--enable-metrics", "--flag"):
    parser.add_argument(name, action="store_true")
said = parser.parse_args()
print(json.dumps([vars(said), {k: v for k, v in os.environ.items() if k.startswith(("GPUDIAG_", "PYTHONF"))}]))
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and an interpreter that finds an engine called sglang."""
    package = tmp_path / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(ENGINE)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)
    return target(tmp_path / "model")


def launch(model: Path, *words: str) -> int:
    options = ["launch", "sglang", "--model", str(model), "--python", sys.executable, "--port", "28999"]
    return run([*options, *words])


def test_the_command_that_is_printed_starts_the_engine_just_so(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = launch(model, "--no-draft", "--dry-run", "--record", str(tmp_path / "my runs"), "--", "--flag")
    out, err = capsys.readouterr()
    assert "GPD70" not in err
    assert code in (0, 1), err
    ended = subprocess.run(["bash", "-c", out], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert f'"model_path": "{model}"' in ended.stdout
    assert '"flag": true' in ended.stdout
    assert '"PYTHONFAULTHANDLER": "1"' in ended.stdout
    assert f'"GPUDIAG_RUN": "{tmp_path}/my runs/' in ended.stdout


def test_nothing_is_made_or_started_by_a_dry_run(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch(model, "--dry-run", "--explain")
    capsys.readouterr()
    assert not (tmp_path / "state").exists()


def test_an_unknown_option_is_refused_before_the_start(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(model, "--no-tui", "--", "--flog", "--max-running-request=3") == 1
    out, err = capsys.readouterr()
    assert "GPD701 SGLang has no option --flog; nearest:" in " ".join(err.split())
    assert "--force" in err
    # argparse takes a beginning that only one option has.
    assert err.count("GPD701") == 1
    assert out == ""
    assert not (tmp_path / "state").exists()


def test_a_drafter_with_a_renamed_weight_is_refused_before_the_start(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed = {name.replace("midlayer", "middle"): tensor for name, tensor in weights().items()}
    place = drafter(tmp_path / "draft", renamed)
    assert launch(model, "--draft", str(place), "--dry-run") == 1
    assert "GPD605" in capsys.readouterr().err


def test_a_drafter_that_is_whole_is_served_as_eagle3(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = drafter(tmp_path / "draft", {**weights(), "midlayer.input_layernorm.weight": plain(8)})
    launch(model, "--draft", str(place), "--dry-run", "--profile", "deepseek-v3")
    out, err = capsys.readouterr()
    assert "GPD604" not in err
    words = shlex.split(out)
    assert words[words.index("--speculative-algorithm") + 1] == "EAGLE3"
    assert words[words.index("--speculative-draft-model-path") + 1] == str(place)
    assert "unquant" in words


def test_a_secret_is_not_printed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = ("--otlp-traces-endpoint", "https://me:topsecret99@host", "--json", '{"api_key": "topsecret99"}')
    launch(model, "--dry-run", "--explain", "--", "--api-key", "topsecret99", "--api-key=topsecret99", *inside)
    out, err = capsys.readouterr()
    assert "topsecret99" not in out + err
    assert "HIDDEN stands for a secret" in err


def test_the_explanation_names_source_and_switch(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch(model, "--explain", "--ascii")
    out = capsys.readouterr().out
    assert out.isascii()
    assert "--no-arm faulthandler leaves out:" in out
    assert "PYTHONFAULTHANDLER=1" in out
    assert max(len(line) for line in out.splitlines() if "/" not in line) <= 80


def test_an_engine_that_cannot_be_asked_leaves_the_options_unchecked(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site/sglang/launch_server.py").write_text("import broken_dependency_of_it\n")
    launch(model, "--dry-run", "--", "--anything", "1")
    err = " ".join(capsys.readouterr().err.split())
    assert "options are not checked" in err
    assert "broken_dependency_of_it" in err
    assert "GPD701" not in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["launch"], 2, "gpudiag launch sglang|vllm --model DIR"),
        (["launch", "sglang"], 2, "--model"),
        (["launch", "tgi", "--model", "."], 2, "'tgi' is not one of"),
        (["launch", "sglang", "--model", "/no/such", "--python", sys.executable], 2, "no such directory"),
        (["launch", "vllm", "--model", ".", "--python", sys.executable], 3, "has no vllm"),
        (["launch", "sglang", "--model", ".", "--python", "/no/python"], 2, "--python /no/python"),
        (["launch", "sglang", "--model", ".", "--no-arm", "nccl-lag", "--python", sys.executable], 2, "--no-arm nccl-log"),
        (["launch", "sglang", "--model", ".", "--draft", ".", "--no-draft"], 2, "contradict"),
        (["launch", "vllm", "--model", ".", "--max-model-len", "9"], 2, "gpudiag launch ENGINE --model DIR -- --max-model-len"),
        (["launch", "vllm", "--modle", "."], 2, "--model"),
        (["launch", "sglang", "--model", ".", "2"], 2, "'2' is no option"),
    ],
)
@pytest.mark.usefixtures("model")
def test_what_is_typed_wrongly_is_told_in_one_line(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) <= 2


def test_no_engine_anywhere_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    assert run(["launch", "sglang", "--model", str(tmp_path)]) == 3
    assert 'pip install "gpudiag[serve]"' in capsys.readouterr().err


def test_profiles_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch", "--list-profiles"]) == 0
    out = capsys.readouterr().out
    assert [n for n in ("kimi-k2.5", "deepseek-v3", "llama-3.x", "qwen3", "gpt-oss", "cpu") if n not in out] == []
