"""When a look asks NCCL's service: on request or where memory does not tell, in the target's net namespace, at no other time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudiag.collect import procfs
from gpudiag.collect.look import LookOptions, observe
from gpudiag.collect.net_namespace import inside
from gpudiag.collect.process_reader import read_light
from gpudiag.collect.ras_look import ask_service, creates
from gpudiag.model.communicator import Communicator, Nccl
from gpudiag.model.process import Process
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable
from gpudiag.model.stack import Frame, PyStack
from tests.nccl.targets import fake, slot
from tests.nccl.test_ras import ANSWER

SERVICE = Path(__file__).parent / "programs" / "ras_service.py"
ALWAYS = LookOptions(stacks="none", ras=True)


class Service:
    def __init__(self, process: subprocess.Popen[bytes], count: Path) -> None:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            pytest.skip("no net namespace can be made here")
        self.pid = process.pid
        self.port = int(said)
        self._count = count

    @property
    def questions(self) -> int:
        return self._count.stat().st_size if self._count.exists() else 0


@contextlib.contextmanager
def service(directory: Path, prefix: Sequence[str] = ()) -> Iterator[Service]:
    (directory / "answer").write_text(ANSWER)
    command = [*prefix, sys.executable, str(SERVICE), str(directory / "answer"), str(directory / "count")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield Service(process, directory / "count")
        finally:
            process.kill()


def rank(pid: int, port: int, **more: object) -> Process:
    """A process with one communicator that listens there."""
    process = read_light(pid)
    assert process is not None
    one = Communicator(hash="0x1", rank=0, size=2, cuda_device=0, nvml_device=0, launched=(0, 0, 0, 0, 21))
    nccl = Nccl(library="libnccl.so.2", build_id="", communicators=(one,))
    known = Ok(value={"NCCL_RAS_ADDR": f"localhost:{port}"}, at=0.0)
    return replace(process, environ=known, nccl=Ok(value=(nccl,), at=0.0), **more)


def test_asked_once_in_the_last_look_and_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path) as there:
        monkeypatch.setenv("NCCL_RAS_ADDR", f"localhost:{there.port}")
        with fake(tmp_path / "fake", "2.28.9", [slot(7, 1)]) as target:
            plain = observe([target.pid], LookOptions(stacks="none"), interval_s=0.1)
            assert there.questions == 0
            asked = observe([target.pid], ALWAYS, interval_s=0.1)
            assert there.questions == 1
    assert plain.last.ras == NOT_ASKED
    assert asked.first.ras == NOT_ASKED
    assert isinstance(asked.last.ras, Ok)
    (communicator,) = asked.last.ras.value
    assert [m.rank for m in communicator.missing] == [1]
    process = asked.last.process(target.pid)
    assert process is not None
    assert isinstance(process.nccl, Ok)
    assert {n.source for n in process.nccl.value} == {"memory"}


def test_never_while_a_communicator_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path) as there:
        monkeypatch.setenv("NCCL_RAS_ADDR", f"localhost:{there.port}")
        with fake(tmp_path / "fake", "2.28.9", [slot(7, 1), slot(8, 1, init=7)]) as target:
            seen = observe([target.pid], ALWAYS, samples=1).last
        assert there.questions == 0
    assert isinstance(seen.ras, Unavailable)
    assert f"process {target.pid} creates a communicator" in seen.ras.reason


def test_stacks_show_the_creation_too() -> None:
    frames = tuple(Frame(function=f, file="pynccl_wrapper.py", line=1) for f in ("ncclCommInitRank", "__init__"))
    stack = PyStack(tid=1, name=None, ident=1, active=True, owns_gil=False, frames=frames)
    process = rank(os.getpid(), 1)
    assert not creates(process)
    assert creates(replace(process, stacks=Ok(value=(stack,), at=0.0)))


def test_without_a_communicator_there_is_nobody_to_ask() -> None:
    process = replace(rank(os.getpid(), 1), nccl=Ok(value=(), at=0.0))
    said = ask_service([process], always=True)
    assert isinstance(said.ras, Unavailable)
    assert "has a communicator" in said.ras.reason


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_in_the_net_namespace_of_the_target(tmp_path: Path) -> None:
    with service(tmp_path, ["unshare", "-n"]) as there:
        process = rank(there.pid, there.port)
        assert process.net_namespace != procfs.namespace_inode("self", "net")
        said = ask_service([process], always=True)
        # Not here: the same port of this namespace is another one.
        here = ask_service([replace(process, net_namespace=None)], always=True)
    assert isinstance(said.ras, Ok), said.ras
    assert said.ras.value[0].pids == {0: 1214}
    assert isinstance(here.ras, (Unavailable, Failed))
    assert procfs.namespace_inode("self", "net") != process.net_namespace


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_namespace_that_may_not_be_entered_names_the_command(tmp_path: Path) -> None:
    code = (
        "import sys, json, ctypes\n"
        # CAP_SYS_ADMIN leaves the bounding set and then, with the next program, the process: 21 in capability.h.
        "assert ctypes.CDLL(None).prctl(24, 21, 0, 0, 0) == 0\n"
        "import os; os.execv(sys.executable, [sys.executable, '-m', 'gpudiag.collect.ras_inside', *sys.argv[1:]])\n"
    )
    with service(tmp_path, ["unshare", "-n"]) as there:
        arguments = [str(os.getpid()), str(there.pid), "localhost", str(there.port), "3"]
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=True, timeout=60)
    assert b"CAP_SYS_ADMIN" in done.stdout
    assert f"nsenter -t {there.pid} -n gpudiag attach {there.pid} --ras".encode() in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_process_that_is_gone_has_no_namespace() -> None:
    with pytest.raises(OSError, match="No such file"), inside(2**22 - 7):
        pass
