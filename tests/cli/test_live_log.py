"""attach reads the log of the server it looks at, and a recording keeps what it said."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudiag.demo.run import Running, start
from gpudiag.session.load import load
from tests.cli import programs

SILENT_S = 41
XID = b"[Sun Nov 29 18:40:01 2026] NVRM: Xid (PCI:0000:18:00): 79, pid=4242, name=python, GPU has fallen off the bus.\n"


@pytest.fixture(scope="module")
def hung() -> Iterator[Running]:
    """A demo server that hangs on a stale lock, with a word of the kernel in its log."""
    with tempfile.TemporaryDirectory(prefix="g") as top, start("stale-lock", seed=3, directory=Path(top)) as server:
        server.wait_until_stuck()
        log = Path(os.readlink(f"/proc/{server.root_pid}/fd/1"))
        with log.open("ab") as file:
            file.write(XID)
        yield server


def test_what_the_log_says_stands_below_what_the_processes_say(hung: Running, tmp_path: Path) -> None:
    log = Path(os.readlink(f"/proc/{hung.root_pid}/fd/1"))
    written = log.stat().st_mtime - SILENT_S
    os.utime(log, (written, written))
    file = tmp_path / "hang.gpudiag"
    live = programs.gpudiag("attach", str(hung.root_pid), "--interval", "0.3", "--record", str(file), "--json")
    report = json.loads(live.stdout)
    assert report["verdict"]["code"] == "GPD307"
    assert [f["code"] for f in report["findings"]] == ["GPD307", "GPD501"]
    assert report["findings"][1]["evidence"][0]["excerpt"].startswith("NVRM: Xid")
    assert report["target"]["log_silent_s"] >= SILENT_S
    later = json.loads(programs.gpudiag("explain", str(file), "--json").stdout)
    assert [f["code"] for f in later["findings"]] == ["GPD307", "GPD501"]
    assert later["target"]["log_silent_s"] == report["target"]["log_silent_s"]
    assert len(load(file).logs) == 1
    assert ", no log for " in programs.gpudiag("explain", str(file)).stdout.splitlines()[0]


def test_the_recording_holds_what_was_understood_and_not_the_log(hung: Running, tmp_path: Path) -> None:
    secret = b"INFO 11-29 18:40:00 [logger.py:40] Received request: prompt: 'the cat sat', token hf_Ab3dEfGhIjKlMnOpQrStUvWx\n"
    log = Path(os.readlink(f"/proc/{hung.root_pid}/fd/1"))
    with log.open("ab") as file:
        file.write(secret + b"x\n" * 100)
    kept = tmp_path / "hang.gpudiag"
    programs.gpudiag("attach", str(hung.root_pid), "--interval", "0.3", "--record", str(kept), "--json")
    (told,) = load(kept).logs
    assert told.facts is not None
    assert "the cat sat" not in repr(told)
    assert "hf_Ab3dEf" not in repr(told)


def test_without_the_open_files_it_says_so(hung: Running) -> None:
    done = programs.gpudiag("attach", str(hung.root_pid), "--interval", "0.3", "--withhold", "fds", "--json")
    told = [n for n in json.loads(done.stdout)["not_read"] if n["source"] == "log"]
    assert [n["reason"] for n in told] == ["where it goes is not known: open files could not be read"]
