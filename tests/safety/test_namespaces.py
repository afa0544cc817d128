"""gpudiag where /proc shows less than usual, or another pid namespace than its own."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.cli.programs import command, environment

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"), reason="needs root, unshare and setpriv"
)

NO_RIGHTS = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
HIDDEN = ("unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid="$0" proc /proc && exec "$@"')


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(arguments, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
    if done.stderr.startswith(("unshare:", "mount:")):
        pytest.skip(done.stderr)
    return done


@pytest.mark.parametrize("hidepid", ["1", "2"])
def test_processes_that_are_hidden_are_no_bug(hidepid: str) -> None:
    done = run(*HIDDEN, hidepid, *NO_RIGHTS, *command("demo", "--ranks", "2", "--seed", "7"))
    assert done.returncode == 1, done.stderr
    assert "GPD307" in done.stdout
