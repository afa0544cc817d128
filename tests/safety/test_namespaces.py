"""gpudiag where /proc shows less than usual, or another pid namespace than its own."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from gpudiag.collect import procfs
from tests.cli.programs import command, environment
from tests.collect.helpers import program
from tests.support.checkout import ROOT

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"), reason="needs root, unshare and setpriv"
)

NO_RIGHTS = ("setpriv", "--regid", "65534", "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all")
"""Root without any, and outside its group, from which hidepid hides nothing."""
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


@pytest.mark.parametrize("hidepid", ["1", "2"])
def test_a_process_that_may_be_hidden_is_not_called_absent(hidepid: str) -> None:
    done = run(*HIDDEN, hidepid, *NO_RIGHTS, *command("attach", "1"))
    assert done.returncode == 3
    assert "or /proc hides it: it is mounted with hidepid=" in done.stderr
    assert "try: sudo gpudiag attach 1" in done.stderr


@pytest.mark.parametrize("arguments", [("attach",), ("attach", "1"), ("demo",)])
def test_the_proc_of_another_pid_namespace_is_refused(arguments: tuple[str, ...]) -> None:
    done = run("unshare", "-p", "-f", *command(*arguments))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("gpudiag: error: /proc is of another pid namespace: it shows gpudiag as ")


def test_a_process_that_may_not_be_dumped_is_told() -> None:
    code = """
    import ctypes
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    ready()
    wait()
    """
    ask = """
    from gpudiag.collect.access import refused
    os.setuid(65534)
    ready(refused(int(sys.argv[1]), attach=True).reason)
    """
    with program(code) as target, program(ask, str(target.pid), path=ROOT) as asker:
        assert asker.said == [f"process {target.pid} is not dumpable (PR_SET_DUMPABLE 0)"]


def test_a_thread_of_the_kernel_is_called_one() -> None:
    if not procfs.read_stat(2).kernel_thread:
        pytest.skip("process 2 is none in a container")
    done = run(*command("attach", "2"))
    assert done.returncode == 3
    assert "process 2 is a thread of the kernel" in done.stderr


def test_a_demo_without_a_network_says_what_it_needs() -> None:
    done = run("unshare", "-n", *command("demo", "--ranks", "2"))
    expected = "gpudiag: error: the demo cannot reach 127.0.0.1: Network is unreachable\ntry: ip link set lo up\n"
    assert (done.returncode, done.stderr.partition("\n")[2]) == (2, expected)
