"""gpudiag launch on a terminal: the screen comes up, and leaving it does not end the server."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gpudiag.model.run import RunManifest
from tests.doctor.checkpoints import target
from tests.launch.launching import alive
from tests.support.processes import wait_until

ENGINE = """
import argparse, signal
parser = argparse.ArgumentParser()
parser.add_argument("--model-path")
parser.parse_known_args()
signal.pause()
"""
LIMIT_S = 60.0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    package = tmp_path / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(ENGINE)
    return target(tmp_path / "model")


def test_leaving_the_screen_leaves_the_server(model: Path, tmp_path: Path) -> None:
    words = ["launch", "sglang", "--model", str(model), "--python", sys.executable, "--no-draft", "--force"]
    places = {f"XDG_{n}_HOME": str(tmp_path / n.lower()) for n in ("CACHE", "STATE", "CONFIG")}
    around = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(tmp_path / "site"), **places}
    terminal, its_side = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "gpudiag", *words],
        env=around,
        stdin=its_side,
        stdout=its_side,
        stderr=its_side,
        start_new_session=True,
    )
    os.close(its_side)
    try:
        read_until(terminal, rb"\x1b\[\?1049h.*q quit")
        os.write(terminal, b"q")
        said = read_until(terminal, rb"gpudiag attach \d+; end it with: kill \d+\r")
        server, supervisor = map(int, re.findall(rb"gpudiag attach (\d+); end it with: kill (\d+)", said)[0])
        assert child.wait(LIMIT_S) == 0
        assert alive(supervisor)
        assert alive(server)
        os.kill(supervisor, signal.SIGTERM)
        wait_until(lambda: not alive(supervisor) and not alive(server), "the server is ended on request", LIMIT_S)
    finally:
        child.kill()
        child.wait()
        os.close(terminal)
        for manifest in (tmp_path / "state").rglob("manifest.json"):
            left = msgspec.json.decode(manifest.read_bytes(), type=RunManifest).supervisor_pid
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGTERM)


def read_until(terminal: int, pattern: bytes) -> bytes:
    """Everything up to where the pattern stands."""
    seen = b""
    deadline = time.monotonic() + LIMIT_S
    while re.search(pattern, seen, re.DOTALL) is None:
        assert time.monotonic() < deadline, seen[-2000:]
        if select.select([terminal], [], [], 0.5)[0]:
            seen += os.read(terminal, 1 << 16)
    return seen
