"""attach and explain from the outside: which server is meant, where the report goes, what leaves the machine."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpudiag.cli import main, target
from gpudiag.demo.run import Running, start
from gpudiag.model.process import Process
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member, Rank, Server
from gpudiag.model.snapshot import Snapshot
from gpudiag.session import pipeline
from gpudiag.session.load import load
from tests.cli import programs
from tests.session.samples import host


@pytest.fixture(scope="module")
def hung() -> Iterator[Running]:
    """A demo server below the home of a user, hung on a stale lock."""
    top = Path(tempfile.mkdtemp(prefix="g"))
    home = top / "home" / "zebulon"
    home.mkdir(parents=True)
    with start("stale-lock", seed=11, directory=home) as server:
        server.wait_until_stuck()
        yield server
    shutil.rmtree(top)


def server(root: int, ranks: int) -> Server:
    members = (
        Member(pid=root, role="frontend"),
        *(Member(pid=root + 1 + r, role="worker", rank=Rank(tp=r)) for r in range(ranks)),
    )
    return Server(engine="sglang", root_pid=root, members=members)


def around(*commands: tuple[int, str]) -> Snapshot:
    processes = tuple(
        Process(
            pid=p, ppid=1, start_ticks=1, name="python", state="S", uid=0, cpu_ticks=0, cmdline=Ok(value=tuple(c.split()), at=1.0)
        )
        for p, c in commands
    )
    return Snapshot(host=host(), at=1.0, monotonic_s=1.0, processes=processes)


@pytest.fixture
def two_servers(monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    """A host that runs two servers, as far as recognition is concerned."""
    look = around((100, "python -m sglang.launch_server \x1b[2J --port 1"), (200, "python -m sglang.launch_server --port 2"))
    monkeypatch.setattr(pipeline, "scan", lambda *_: look)
    monkeypatch.setattr(pipeline, "recognise", lambda _: (server(100, 1), server(200, 8)))
    return look


def test_no_server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(pipeline, "scan", lambda *_: around((1, "init"), (2, "bash")))
    for arguments in (["attach"], ["attach", "--all"]):
        assert main.run(arguments) == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "found no server: looked for SGLang, vLLM and torch.distributed processes among 2 processes" in captured.err
        assert "gpudiag demo" in captured.err


def test_no_such_process(capsys: pytest.CaptureFixture[str]) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True).stdout.strip()
    assert main.run(["attach", gone]) == 3
    assert f"there is no process {gone} here" in capsys.readouterr().err


@pytest.mark.usefixtures("two_servers")
def test_several_servers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["attach"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[1].startswith("  pid 100      sglang   1 rank   python -m sglang.launch_server \\x1b[2J --port 1")
    assert lines[2].startswith("  pid 200      sglang   8 ranks  python -m")
    assert lines[-2:] == ["try: gpudiag attach 100", "     or all of them: gpudiag attach --all"]
    assert max(map(len, lines)) <= 80


def test_several_servers_are_asked_about(
    two_servers: Snapshot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(target, "can_ask", lambda: True)
    asked = []

    def prompt(text: str, *, default: str, err: bool, **_: object) -> str:
        asked.append((text, default, err))
        return "200"

    monkeypatch.setattr(click, "prompt", prompt)
    assert target.choose(two_servers).root_pid == 200
    assert asked == [("pid", "100", True)]
    assert capsys.readouterr().out == ""


def test_orphaned_workers_are_looked_at_too() -> None:
    look = around((100, "root"), (101, "worker"), (102, "worker"))
    orphan = server(100, 2)
    assert pipeline.tops(orphan, look) == (100, 101, 102)


def test_a_server_that_ends_before_the_look(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    real = pipeline.observe

    def late(*arguments: object, **options: object) -> object:
        process.communicate(b"\n")
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "observe", late)
    assert main.run(["attach", str(process.pid), "--interval", "0.1"]) == 3
    assert f"was gone before it could be looked at (pid {process.pid})" in capsys.readouterr().err


def test_a_hang_is_named_and_the_exit_code_says_so(hung: Running) -> None:
    result = programs.gpudiag("attach", str(hung.root_pid), "--interval", "0.3")
    assert result.returncode == 1
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith("gpudiag 0.")
    assert lines[0].endswith("HUNG")
    assert lines[2].startswith("✗ GPD307  rank ")
    assert f"who     rank {hung.victim_rank}, pid {hung.victim_pid}, main thread" in result.stdout
    assert str(hung.lock_path) in result.stdout
    assert "\x1b" not in result.stdout
    assert max(len(line) for line in lines if "`" not in line) <= 80


def test_any_process_of_the_server_will_do(hung: Running) -> None:
    result = programs.gpudiag("attach", str(hung.victim_pid), "--json", "--interval", "0.3", "--fail-on", "never")
    report = json.loads(result.stdout)
    assert result.returncode in (0, 5)
    assert report["target"]["root_pid"] == hung.root_pid
    assert report["verdict"]["code"] == "GPD307"
    assert report["verdict"]["culprits"][0]["pid"] == hung.victim_pid
    assert report["verdict"]["culprits"][0]["path"] == str(hung.lock_path)
    assert report["cost"]["stopped_s"] == 0.0
    assert 0.3 <= report["cost"]["wall_s"] < 30


def test_what_is_written_or_pasted_is_redacted(hung: Running, tmp_path: Path) -> None:
    pid = str(hung.root_pid)
    for arguments in (("--format", "markdown"), ("--json", "-o", str(tmp_path / "report.json"))):
        result = programs.gpudiag("attach", pid, "--interval", "0.3", *arguments)
        assert result.returncode == 1
        said = result.stdout + ((tmp_path / "report.json").read_text() if "-o" in arguments else "")
        assert "zebulon" not in said
        assert "/home/user-" in said
        assert "gpudiag: taken out: " in result.stderr
        assert "--no-redact keeps them" in result.stderr
    plain = programs.gpudiag("attach", pid, "--interval", "0.3", "--format", "markdown", "--no-redact")
    assert "zebulon" in plain.stdout
    assert plain.stderr == ""


def test_record_and_explain(hung: Running, tmp_path: Path) -> None:
    file = tmp_path / "hang.gpudiag"
    live = programs.gpudiag("attach", str(hung.root_pid), "--interval", "0.3", "--record", str(file), "--json")
    assert live.returncode == 1
    assert f"gpudiag: recorded in {file}; taken out: " in live.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"zebulon" not in b"".join(load(file).redactions.summary.encode() for _ in [0])
    later = programs.gpudiag("explain", str(file), "--json")
    assert later.returncode == 1
    first, second = json.loads(live.stdout), json.loads(later.stdout)
    assert second["command"] == "explain"
    assert second["verdict"]["code"] == first["verdict"]["code"] == "GPD307"
    assert second["verdict"]["confidence"] == first["verdict"]["confidence"]
    assert second["verdict"]["culprits"][0]["rank"] == hung.victim_rank
    assert second["verdict"]["culprits"][0]["line"] == first["verdict"]["culprits"][0]["line"]
    again = programs.gpudiag("attach", str(hung.root_pid), "--record", str(file))
    assert again.returncode == 2
    assert "exists and is not overwritten" in again.stderr
    assert again.stdout == ""
    both = programs.gpudiag("explain", str(file), str(file), "--json")
    assert [r["verdict"]["code"] for r in json.loads(both.stdout)] == ["GPD307", "GPD307"]


def test_the_report_comes_even_if_it_cannot_be_recorded(
    hung: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hang.gpudiag"
    real = pipeline.observe

    def meanwhile(*arguments: object, **options: object) -> object:
        file.write_text("somebody was faster")
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "observe", meanwhile)
    assert main.run(["attach", str(hung.root_pid), "--interval", "0.3", "--record", str(file)]) == 2
    captured = capsys.readouterr()
    assert "GPD307" in captured.out
    assert "exists and is not overwritten" in captured.err
    assert file.read_text() == "somebody was faster"


def test_nobody_reads_the_report(hung: Running) -> None:
    """The exit code says what was found even so."""
    arguments = ("attach", str(hung.root_pid), "--interval", "0.3")
    process = subprocess.Popen(
        programs.command(*arguments), env=programs.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 1
    assert process.returncode != 128 + signal.SIGPIPE


def test_explain_says_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    assert main.run(["explain", str(tmp_path / "nothing")]) == 2
    assert "No such file" in capsys.readouterr().err
    log.write_bytes(b"PK\x03\x04 truncated")
    assert main.run(["explain", str(log)]) == 2
    assert "truncated or no recording" in capsys.readouterr().err
