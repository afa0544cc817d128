"""gpudiag explain as a user types it: which files it takes, how many reports come, with which exit code."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudiag.cli import main
from gpudiag.model.log import ServerLog
from gpudiag.session.load import load
from gpudiag.session.record import save
from tests.cli import programs
from tests.logs.support import DATA, facts_of, raw
from tests.support.checkout import ROOT

FAULT = DATA / "vllm_raise_rank1.log.gz"
HEALTHY = DATA / "sglang_healthy.log.gz"
RECORDING = ROOT / "tests" / "recordings" / "hangs" / "GPD307-stale-lock.gpudiag"


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main.run(["explain", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = explained(capsys, str(FAULT))
    assert code == 1
    assert report["command"] == "explain"
    assert report["host"] == os.uname().nodename
    assert (report["verdict"]["code"], report["verdict"]["culprits"][0]["rank"]) == ("GPD220", 1)


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("vllm_raise_rank1", ["--fail-on", "never"], 0),
        ("sglang_healthy", [], 0),
        ("vllm_sigstop_rank1", [], 0),
    ],
)
def test_exit_codes(name: str, options: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", str(DATA / f"{name}.log.gz"), *options]) == code
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input(packed: bool) -> None:
    data = raw("vllm_worker_syntax")
    done = subprocess.run(
        programs.command("explain", "-", "--json"),
        input=gzip.compress(data) if packed else data,
        env=programs.environment(),
        capture_output=True,
        timeout=90,
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["verdict"]["code"] == "GPD201"


@pytest.mark.parametrize("name", ["nothing.log", "bad\0name"])
def test_a_file_that_cannot_be_read_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", str(FAULT), str(tmp_path / name)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("gpudiag: error: cannot read ")
    assert told.err.count("error") == 1


def test_what_is_broken_inside_is_partial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = HEALTHY.read_bytes()
    (tmp_path / "server.log.gz").write_bytes(whole[: len(whole) * 3 // 4])
    code, report = explained(capsys, str(tmp_path))
    assert code == 5
    assert report["not_read"][0]["reason"].startswith("ends early")


def test_dumps_in_a_directory_are_joined(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = explained(capsys, str(DATA / "armed_missing_rank"))
    assert code == 1
    assert (report["verdict"]["code"], report["verdict"]["culprits"][0]["rank"]) == ("GPD301", 1)


def test_a_pipe_is_opened_once(tmp_path: Path) -> None:
    fifo = tmp_path / "server.log"
    os.mkfifo(fifo)
    with subprocess.Popen(["sh", "-c", f"zcat {FAULT} > {fifo}"]) as writer:
        done = programs.gpudiag("explain", str(fifo), "--json")
        assert writer.wait(timeout=20) == 0
    assert json.loads(done.stdout)["verdict"]["code"] == "GPD220"


def test_a_recording_and_a_log_of_another_server_give_two_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, reports = explained(capsys, str(RECORDING), str(FAULT))
    assert code == 1
    assert [r["verdict"]["code"] for r in reports] == ["GPD307", "GPD220"]
    shutil.copy(RECORDING, tmp_path / "hang.gpudiag")
    shutil.copy(FAULT, tmp_path / "server.log.gz")
    _, again = explained(capsys, str(tmp_path))
    assert [r["verdict"]["code"] for r in again] == ["GPD307", "GPD220"]


def test_a_recording_and_the_log_of_its_server_give_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log names the root of the recorded server; what it says comes below what the processes say."""
    root = str(load(RECORDING).observation.last.roots[0])
    log = tmp_path / "server.log"
    log.write_bytes(raw("vllm_raise_rank1").replace(b"24214", root.encode()))
    _, report = explained(capsys, str(RECORDING), str(log))
    assert report["target"]["root_pid"] == int(root)
    assert report["findings"][0]["code"] == report["verdict"]["code"] == "GPD307"
    assert "GPD220" in [f["code"] for f in report["findings"]]


def test_text_fits_and_holds_no_escape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", str(FAULT), "--ascii", "--color", "never"]) == 1
    text = capsys.readouterr().out
    assert text.isascii()
    assert "\x1b" not in text
    long = [line for line in text.splitlines() if len(line) > 80]
    assert [line for line in long if "/site-packages/" not in line] == []
    assert text.index("GPD220") < text.index("because of it") < text.index("evidence")
    assert 'raise IndexError(f"rope table' in text
    assert "no process" not in text


def test_a_report_in_a_file_holds_no_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(raw("vllm_missing_path").replace(b"/models/nope", b"/home/zebulon/nope"))
    assert main.run(["explain", str(log), "-o", str(tmp_path / "report.txt")]) == 1
    assert "taken out" in capsys.readouterr().err
    assert "zebulon" not in (tmp_path / "report.txt").read_text()


def test_a_recording_with_an_impossible_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = facts_of(b"NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.\n")
    (xid,) = told.events
    false = msgspec.structs.replace(told, events=(msgspec.structs.replace(xid, fields={"xid": "\x1b[2Jmany"}),))
    for name, facts, code in (("true", told, 1), ("false", false, 2)):
        file = tmp_path / f"{name}.gpudiag"
        save(load(RECORDING).observation, file, logs=[ServerLog(root_pid=1, facts=facts)])
        assert main.run(["explain", str(file)]) == code
    error = capsys.readouterr().err
    assert "is damaged: what it says of a log cannot be" in error
    assert "\x1b" not in error
