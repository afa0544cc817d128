"""Dumps on demand from a fake armed server on real pipes: what comes back, what goes wrong, and what is asked before."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudiag.collect import kernel_dump
from gpudiag.collect.kernel_dump import Armed, Taken
from gpudiag.collect.look import LookOptions, look
from gpudiag.model.kernel import KernelDump
from gpudiag.model.process import Process
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.snapshot import Observation
from gpudiag.session import kernels
from gpudiag.session.load import load
from gpudiag.session.pipeline import servers_of
from gpudiag.session.record import save
from tests.collect.helpers import state
from tests.support.checkout import ROOT
from tests.support.processes import wait_until

PROGRAMS = Path(__file__).parent / "programs"
LIGHT = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_abort"
QUIET = LookOptions(stacks="none", deadline_s=20.0)


def variables(directory: Path) -> dict[str, str]:
    return {
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        "CUDA_COREDUMP_PIPE": str(directory / "pipe.%h.%p"),
        "CUDA_COREDUMP_FILE": str(directory / "core.%h.%p"),
        "CUDA_COREDUMP_GENERATION_FLAGS": LIGHT,
    }


@contextlib.contextmanager
def server(directory: Path, environ: dict[str, str] | None = None, *, ends: tuple[int, ...] = (0, 1)) -> Iterator[list[int]]:
    """The pids: the launcher's, then the ranks' in order. Ranks in `ends` are aborted by their dump, as real ones are."""
    for rank in ends:
        (directory / f"ends_{rank}").touch()
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "RANK"))}
    chosen = variables(directory) if environ is None else environ
    command = [sys.executable, str(PROGRAMS / "armed.py"), str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**clean, **chosen}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield [process.pid, *map(int, process.stdout.readline().split())]
        finally:
            process.stdin.close()
            process.wait(20)


@pytest.fixture
def debugger(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cuda-gdb on PATH that prints what the real one printed."""
    place = tmp_path_factory.mktemp("bin")
    (place / "cuda-gdb").symlink_to(PROGRAMS / "recorded-cuda-gdb")
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


def targets(root: int) -> list[Armed]:
    observation = Observation(snapshots=(look([root], QUIET),))
    (found,) = servers_of(observation)
    plan = kernels.plan(observation, found)
    assert len(plan.targets) == 2, plan
    return [t.armed for t in plan.targets]


def taken(root: int, *, wait_s: float = 10.0) -> Taken:
    return kernel_dump.take(targets(root), wait_s=wait_s)


def by_pid(found: Taken) -> dict[int, KernelDump]:
    assert isinstance(found.reading, Ok), found
    return {d.pid: d for d in found.reading.value}


@pytest.mark.usefixtures("debugger")
def test_every_rank_is_asked_and_its_kernel_named(tmp_path: Path) -> None:
    with server(tmp_path, ends=(1,)) as (root, first, second):
        dumps = by_pid(taken(root))
        assert Path(f"/proc/{first}").exists()
    assert [k.name for k in dumps[first].kernels] == ["ncclDevKernel_AllReduce_Sum_f32_RING_LL"]
    assert [(k.name, k.line) for k in dumps[second].kernels] == [("wait_for_flag", 7)]
    assert (dumps[first].ended, dumps[second].ended) == (False, True)
    assert Path(dumps[second].path).stat().st_size == dumps[second].size_bytes


@pytest.mark.usefixtures("debugger")
def test_the_dump_of_a_rank_whose_end_is_the_server_s_is_read(tmp_path: Path) -> None:
    """The directory is held open from before the dump: the root of a process ends with it."""
    with server(tmp_path) as (root, *ranks):
        dumps = by_pid(taken(root))
    assert dumps.keys() == set(ranks)
    assert all(d.ended and d.kernels for d in dumps.values())


@pytest.mark.usefixtures("debugger")
def test_an_idle_gpu_has_no_kernel_and_its_rank_lives_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDED", "missing_rank")
    with server(tmp_path, ends=(0,)) as (root, first, second):
        dumps = by_pid(taken(root))
    assert len(dumps[first].kernels) == 1
    assert (dumps[second].kernels, dumps[second].ended) == ((), False)


@pytest.mark.usefixtures("debugger")
def test_a_dump_that_is_cut_off_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "cut_1").touch()
    with server(tmp_path) as (root, first, second):
        found = taken(root, wait_s=1.0)
    assert by_pid(found).keys() == {first}
    (gap,) = found.gaps
    assert f"pid {second}: its dump {tmp_path}" in gap.reason
    assert "is cut off: 564 bytes, and not complete within 1 s" in gap.reason


@pytest.mark.usefixtures("debugger")
def test_a_dump_in_two_steps_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "late_1").touch()
    with server(tmp_path) as (root, _, second), subprocess.Popen(["/bin/sh", "-c", _WHEN_BEGUN, "sh", str(tmp_path)]) as release:
        dumps = by_pid(taken(root))
        assert release.wait(20) == 0
    assert dumps[second].kernels


_WHEN_BEGUN = 'until [ -s "$(ls -t "$1"/core.* 2>/dev/null | head -n 1)" ]; do sleep 0.05; done; sleep 0.5; rm "$1/late_1"'


@pytest.mark.usefixtures("debugger")
def test_an_old_dump_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "silent_1").touch()
    with server(tmp_path) as (root, first, second):
        old = tmp_path / f"core.{os.uname().nodename}.{second}"
        old.write_bytes(b"\x7fELF an older one")
        os.utime(old, (time.time() - 3600, time.time() - 3600))
        found = taken(root, wait_s=1.0)
    assert by_pid(found).keys() == {first}
    assert re.search(rf"it wrote no new dump within 1 s; {old} is 36\d\d s old and was not read", found.gaps[0].reason)


@pytest.mark.usefixtures("debugger")
def test_an_old_dump_that_is_written_anew_is_read(tmp_path: Path) -> None:
    with server(tmp_path) as (root, _, second):
        (tmp_path / f"core.{os.uname().nodename}.{second}").write_bytes(b"\x7fELF an older one")
        assert by_pid(taken(root))[second].kernels


def test_without_cuda_gdb_the_dump_is_kept_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_dump, "find_debugger", lambda: None)
    with server(tmp_path) as (root, *_):
        found = taken(root)
    assert isinstance(found.reading, Failed)
    assert "cuda-gdb was not found" in found.reading.error
    assert f"target cudacore {tmp_path}/core." in found.gaps[0].help


def test_a_debugger_that_hangs_costs_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    (place / "cuda-gdb").write_text("#!/bin/sh\nexec sleep 600\n")
    (place / "cuda-gdb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    with server(tmp_path) as (root, *_):
        started = time.monotonic()
        found = kernel_dump.take(targets(root), wait_s=10, read_s=0.5)
    assert time.monotonic() - started < 10
    assert isinstance(found.reading, Failed)
    assert "did not read its dump within 0.5 s" in found.reading.error


def refusal(directory: Path, environ: dict[str, str]) -> Unavailable:
    with server(directory, environ) as (root, *_):
        observation = Observation(snapshots=(look([root], QUIET),))
        (found,) = servers_of(observation)
        plan = kernels.plan(observation, found)
    assert not plan.targets
    assert plan.refusal is not None
    return plan.refusal


def test_unarmed_it_says_how_to_arm(tmp_path: Path) -> None:
    why = refusal(tmp_path, {})
    assert why.reason == "the server was not started with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1"
    assert "gpudiag launch --arm-kernel-dump" in why.help


def test_dumps_with_the_memory_of_the_gpu_are_not_asked_for(tmp_path: Path) -> None:
    why = refusal(tmp_path, {**variables(tmp_path), "CUDA_COREDUMP_GENERATION_FLAGS": "skip_abort"})
    assert "would hold the memory of the GPU" in why.reason


def test_a_rank_without_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"no_pipe_{rank}").touch()
    with server(tmp_path) as (root, *_):
        started = time.monotonic()
        found = taken(root)
    assert time.monotonic() - started < 5
    assert isinstance(found.reading, Failed)
    assert "is not there" in found.reading.error


def test_a_stopped_rank_is_not_asked(tmp_path: Path) -> None:
    with server(tmp_path) as (root, first, second):
        os.kill(second, signal.SIGSTOP)
        try:
            wait_until(lambda: state(second) == "T", "the rank is stopped")
            observation = Observation(snapshots=(look([root], QUIET),))
            (found,) = servers_of(observation)
            plan = kernels.plan(observation, found)
        finally:
            os.kill(second, signal.SIGCONT)
    assert [t.armed.process.pid for t in plan.targets] == [first]
    assert plan.gaps[0].help == f"kill -CONT {second}"


def test_default_names_and_other_places(tmp_path: Path) -> None:
    with server(tmp_path) as (root, first, _):
        process = look([root], QUIET).process(first)
    assert process is not None
    base = {"CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1", "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1"}
    default = kernel_dump.armed(process, base)
    assert isinstance(default, Armed)
    assert (default.pipe, default.directory) == (f"corepipe.cuda.{os.uname().nodename}.{first}", ".")
    assert default.shown == f"./core_TIME_{os.uname().nodename}_{first}.nvcudmp"
    timed = kernel_dump.armed(process, {**base, "CUDA_COREDUMP_FILE": "/tmp/%t/core"})
    assert isinstance(timed, Unavailable)
    by_name = kernel_dump.armed(process, {**base, "CUDA_COREDUMP_PIPE": str(tmp_path / "pipe.%h.%p")})
    assert isinstance(by_name, Armed)
    assert by_name.pipe_fd is not None, "found among the descriptors of the rank"


def command(pid: int, *options: str) -> list[str]:
    return [sys.executable, "-m", "gpudiag", "attach", str(pid), "--kernel-dump", *options]


def test_without_a_terminal_it_wants_to_be_told(tmp_path: Path) -> None:
    with server(tmp_path) as (root, *ranks):
        done = subprocess.run(command(root), capture_output=True, text=True, cwd=ROOT, timeout=60, stdin=subprocess.DEVNULL)
        assert all(Path(f"/proc/{pid}").exists() for pid in ranks)
    assert done.returncode == 2
    assert "ends the ranks that hang, and there is no terminal to ask at" in done.stderr
    assert not list(tmp_path.glob("core.*"))


@pytest.mark.usefixtures("debugger")
def test_told_to_it_dumps_reports_and_records(tmp_path: Path) -> None:
    recording = tmp_path / "seen.gpudiag"
    with server(tmp_path) as (root, *ranks):
        options = ("--yes", "--json", "--record", str(recording))
        done = subprocess.run(command(root, *options), capture_output=True, text=True, cwd=ROOT, timeout=90)
    assert f"pid {ranks[0]} wrote {tmp_path}/core." in done.stderr, done.stderr
    assert done.stderr.count(" and has ended") == 2
    assert "CUDA core dump, and that ends" in done.stderr
    assert "known so far: insufficient: not enough evidence" in done.stderr
    kept = load(recording).observation.last.kernels
    assert isinstance(kept, Ok)
    assert {k.name for d in kept.value for k in d.kernels} == {"wait_for_flag", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}


def test_at_a_terminal_no_is_no(tmp_path: Path) -> None:
    with server(tmp_path) as (root, *ranks):
        here, there = pty.openpty()
        with subprocess.Popen(command(root), stdin=there, stdout=subprocess.DEVNULL, stderr=there, cwd=ROOT) as process:
            os.close(there)
            said = b""
            while b"[y/N]" not in said:
                said += os.read(here, 4096)
            os.write(here, b"\n")
            while process.poll() is None:
                with contextlib.suppress(OSError):
                    said += os.read(here, 4096)
        os.close(here)
        assert all(Path(f"/proc/{pid}").exists() for pid in ranks)
    text = said.decode()
    assert f"pid {ranks[1]}" in text
    assert "SIGABRT" in text
    assert not list(tmp_path.glob("core.*"))


@pytest.mark.usefixtures("debugger")
def test_a_recording_keeps_kernels_without_names_of_people(tmp_path: Path) -> None:
    with server(tmp_path) as (root, *_):
        snapshot = look([root], QUIET)
        found = taken(root)
    (first, *rest) = by_pid(found).values()
    kernel = first.kernels[0]
    named = replace(first, kernels=(replace(kernel, file="/home/brunhilde/ops/top_k.cu", line=3),))
    seen = Observation(snapshots=(replace(snapshot, kernels=Ok(value=(named, *rest), at=1.0)),))
    save(seen, tmp_path / "r.gpudiag", redact=True)
    kept = load(tmp_path / "r.gpudiag").observation.last.kernels
    assert isinstance(kept, Ok)
    shown = kept.value[0].kernels[0]
    assert shown.file is not None
    assert "brunhilde" not in shown.file
    assert shown.file.endswith("/ops/top_k.cu")
    assert shown.name == kernel.name


def test_the_environment_of_another_rank_will_do(tmp_path: Path) -> None:
    """setproctitle writes over the environment of a worker."""
    with server(tmp_path) as (root, *_):
        observation = Observation(snapshots=(look([root], QUIET),))

    def bare(process: Process) -> Process:
        return replace(process, environ=Ok(value={}, at=1.0)) if process.pid != root else process

    last = replace(observation.last, processes=tuple(map(bare, observation.last.processes)))
    (found,) = servers_of(observation)
    assert len(kernels.plan(Observation(snapshots=(last,)), found).targets) == 2
