"""doctor and kernels as somebody types them: exit codes, clear errors, JSON that keeps the contract."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.checkpoints import drafter, target
from tests.doctor.site import Site, make
from tests.kernels import fatbins as made
from tests.support.processes import wait_until


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", **variables}
    command = [sys.executable, "-m", "gpudiag", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)


def report(*arguments: str) -> dict[str, Any]:
    ended = run(*arguments, "--json")
    assert ended.returncode in (0, 1), ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def codes(found: dict[str, Any]) -> set[str]:
    return {f["code"] for f in found["findings"]}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    found = make(tmp_path / "venv")
    found.install("vllm", "0.33.0", {"vllm/__init__.py": "", "vllm/entrypoints/openai/api_server.py": "import vllm.gone\n"})
    return found


def test_a_machine_without_gpu_driver_or_engine_is_told_so_and_is_no_error() -> None:
    ended = run("doctor", "--fail-on", "error")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Installed packages: no interpreter to look into (--python)" in ended.stdout
    assert all(len(line) <= 80 for line in ended.stdout.splitlines() if " " in line.strip()), ended.stdout


def test_ascii_without_colour() -> None:
    ended = run("doctor", "--ascii", "-v", NO_COLOR="1")
    assert ended.stdout.isascii()
    assert "\x1b" not in ended.stdout


def test_an_engine_that_does_not_import_fails_with_its_cause(site: Site) -> None:
    ended = run("doctor", "--python", site.python)
    assert ended.returncode == 1
    assert "GPD202" in ended.stdout
    assert "vllm.gone" in ended.stdout


def test_fast_does_not_import(site: Site) -> None:
    found = report("doctor", "--fast", "--python", site.python)
    assert "GPD202" not in codes(found)
    assert {c["code"]: c["status"] for c in found["checks"]}["GPD202"] == "skipped"


def test_an_interrupt_ends_the_import_that_runs(site: Site, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    module = site.packages / "vllm/entrypoints/openai/api_server.py"
    module.write_text(f"import os, threading\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\nthreading.Event().wait()\n")
    command = [sys.executable, "-m", "gpudiag", "doctor", "--python", site.python]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as program:
        child = int(begun.read_text())
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=30)
    assert program.returncode == 130
    assert "interrupted" in said
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the end of the import")


def test_json_keeps_the_contract(site: Site) -> None:
    found = report("doctor", "--fast", "--python", site.python)
    assert (found["schema"], found["target"], found["command"]) == ("gpudiag.report/1", None, "doctor")
    assert {"verdict", "findings", "waits", "not_read", "cost", "checks"} <= found.keys()
    assert {c["status"] for c in found["checks"]} <= {"ok", "finding", "skipped", "unknown"}


def test_facts_are_judged_again_elsewhere(site: Site, tmp_path: Path) -> None:
    saved = tmp_path / "facts.json"
    live = report("doctor", "--python", site.python, "--save-facts", str(saved))
    again = report("doctor", "--from-facts", str(saved))
    assert codes(live) == codes(again) >= {"GPD202"}
    assert os.uname().nodename not in saved.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["doctor", "--python", "/no/python"], 2, "no program there"),
        (["doctor", "--model", "/no/model"], 2, "no such directory"),
        (["doctor", "--model", "/etc/hostname"], 2, "no directory"),
        (["doctor", "--draft", "AQ-MedAI/Kimi-K2-Instruct-eagle3"], 2, "hf download AQ-MedAI/Kimi-K2-Instruct-eagle3"),
        (["kernels", "list", "--python", "no-such-python"], 2, "no program there"),
        (["doctor", "--for", "twelve"], 2, "no compute capability"),
        (["doctor", "--only", "GPD999"], 2, "there is no check"),
        (["doctor", "--fast", "--deep"], 2, "contradict"),
        (["doctor", "--from-facts", "/etc/hostname"], 2, "holds no facts"),
        (["kernels", "list"], 3, "no interpreter with sglang or vllm"),
        (["kernels", "list", "/etc/hostname"], 3, "no GPU code"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], code: int, words: str) -> None:
    ended = run(*arguments)
    assert ended.returncode == code
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_interpreter_that_does_not_run_is_unknown_not_ok(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 4\n")
    program.chmod(0o755)
    ended = run("doctor", "--fast", "--python", str(program), "--json")
    # It was named, and nothing could be learnt from it.
    assert ended.returncode == 5
    checks = json.loads(ended.stdout)["checks"]
    statuses = {c["code"]: c["status"] for c in checks if c["category"] == "install"}
    assert {statuses[f"GPD{n}"] for n in (105, 106, 107, 124, 134, 135, 203)} == {"unknown"}
    assert "ok" not in statuses.values()
    brief, full = (run("doctor", "--fast", "--python", str(program), *v).stdout for v in ((), ("-v",)))
    assert "package-syntax-error and 7 others not known" in brief
    assert brief.count("ended with") < full.count("ended with") == sum("ended with" in c["detail"] for c in checks)


def test_a_model_with_a_missing_shard(tmp_path: Path) -> None:
    model = target(tmp_path / "m")
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00002.safetensors"}}')
    ended = run("doctor", "--fast", "--model", str(model))
    assert ended.returncode == 1
    assert "model-00002.safetensors" in ended.stdout


def test_one_check_that_could_not_be_made_is_partial(tmp_path: Path) -> None:
    draft = drafter(tmp_path / "eagle3")
    assert run("doctor", "--fast", "--only", "602", "--draft", str(draft)).returncode == 5


def test_the_list_names_every_check() -> None:
    listed = run("doctor", "--list").stdout
    assert all(code in listed for code in ("GPD101", "GPD106", "GPD123", "GPD605"))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "libk.so"
    path.write_bytes(made.shared_object({".nv_fatbin": made.fatbin(made.entry(made.CUBIN, 90), made.entry(made.PTX, 100))}))
    return path


def test_kernels_list(library: Path) -> None:
    text = run("kernels", "list", str(library), "--for", "9.0", "--for", "8.0", "--for", "12.0").stdout
    assert "native: sm_90" in text
    assert "no code for it" in text
    assert "compiled by the driver at first use: compute_100" in text
    found = json.loads(run("kernels", "list", str(library), "--for", "12.0", "--json").stdout)
    assert found["libraries"][0]["on"]["12.0"]["way"] == "jit"


@pytest.mark.parametrize(("capability", "code"), [("9.0", None), ("12.0", "GPD137"), ("8.0", "GPD103")])
def test_kernels_check(library: Path, capability: str, code: str | None) -> None:
    found = report("kernels", "check", str(library), "--for", capability)
    assert codes(found) == ({code} if code else set())
