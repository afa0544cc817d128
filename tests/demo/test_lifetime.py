"""The demo's processes end with whoever started them, unless asked to stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpudiag.demo.procstate import GONE, session_members, state_of
from gpudiag.demo.scenarios import SCENARIOS
from tests.support.checkout import ROOT
from tests.support.processes import wait_until

STARTER = """
import sys
from pathlib import Path
from gpudiag.demo.run import start
with start(sys.argv[1], directory=Path(sys.argv[2])) as run:
    run.wait_until_stuck()
    if sys.argv[3] == "keep":
        run.keep()
    print(run.root_pid, run.client_pid or 0, flush=True)
    if sys.argv[3] != "keep":
        sys.stdin.read()
"""


def starter(scenario: str, directory: Path, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", STARTER, scenario, str(directory), mode]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def pids_of(process: subprocess.Popen[str]) -> tuple[int, int]:
    assert process.stdout is not None
    root, client = map(int, process.stdout.readline().split())
    return root, client


def alive(session: int) -> list[int]:
    return [pid for pid in session_members(session) if state_of(pid) not in GONE]


@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_sigkill_of_the_starter_ends_everything(name: str, tmp_path: Path) -> None:
    with starter(name, tmp_path, "hold") as process:
        root, client = pids_of(process)
        process.kill()
        wait_until(lambda: not alive(root), "the end of the demo")
        wait_until(lambda: client == 0 or state_of(client) in GONE, "the end of the client")
        wait_until(lambda: not list(tmp_path.iterdir()), "the end of the directory")


def test_a_kept_server_stays_and_ends_with_its_root(tmp_path: Path) -> None:
    with starter("rank-stopped", tmp_path, "keep") as process:
        root, client = pids_of(process)
        try:
            assert process.wait() == 0
            assert len(alive(root)) >= 6
            assert state_of(client) not in GONE
        finally:
            os.kill(root, signal.SIGTERM)
        wait_until(lambda: not alive(root), "the end of the demo")
        wait_until(lambda: state_of(client) in GONE, "the end of the client")
        wait_until(lambda: not list(tmp_path.iterdir()), "the end of the directory")
