"""The tests that use GPUs, with a compiler that makes programs which pass, lie, fail or hang; and the real compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from gpudiag.assets import asset, assets
from gpudiag.doctor import active
from gpudiag.model.doctor import CheckResult
from gpudiag.model.facts import GpuSet, GpuTest
from gpudiag.model.install import Environment, Package
from gpudiag.model.reading import Failed, Ok
from gpudiag.rules.preflight import registry
from gpudiag.rules.system.gpu_tests import TESTS_OF
from tests.doctor.machines import facts, gpu, gpu_set, ok, result

COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do case "$1" in -o) out="$2"; shift;; esac; shift; done
cat > "$out" <<'PROGRAM'
#!/bin/sh
{program}
PROGRAM
chmod 755 "$out"
"""


@pytest.fixture
def two() -> GpuSet:
    return gpu_set(gpu(0), gpu(1)).value


def ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, gpus: GpuSet, variables: dict[str, str] | None = None
) -> tuple[GpuTest, ...]:
    compiler = tmp_path / "nvcc"
    compiler.write_text(COMPILER.format(program=program))
    compiler.chmod(0o755)
    monkeypatch.setenv("NVCC", str(compiler))
    hasty = tuple(msgspec.structs.replace(t, limit_s=1.0) if t.name == "peer_copy" else t for t in active.TESTS)
    monkeypatch.setattr(active, "TESTS", hasty)
    found = active.run(gpus, None, variables or {})
    assert isinstance(found, Ok), found
    return found.value


def test_all_tests_run_on_each_gpu_and_each_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    found = ran(tmp_path, monkeypatch, "echo passed", two)
    assert [(r.test, r.gpus) for r in found] == [
        ("smoke", (0,)),
        ("smoke", (1,)),
        ("peer_copy", (0, 1)),
        ("peer_copy", (1, 0)),
        ("peer_ipc", (0, 1)),
        ("peer_ipc", (1, 0)),
        ("all_reduce", (0, 1)),
    ]
    assert [result(code, facts(active=ok(found))).status for code in ("218", "403", "219")] == ["ok", "ok", "ok"]


def test_only_what_a_check_needs_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    compiler = tmp_path / "nvcc"
    compiler.write_text(COMPILER.format(program="echo passed"))
    compiler.chmod(0o755)
    monkeypatch.setenv("NVCC", str(compiler))
    found = active.run(two, None, {}, TESTS_OF["GPD219"])
    assert isinstance(found, Ok)
    assert [r.test for r in found.value] == ["all_reduce"]


def test_every_test_belongs_to_a_check() -> None:
    tests = [name for names in TESTS_OF.values() for name in names]
    assert sorted(tests) == sorted(t.name for t in active.TESTS)
    assert all(registry.check(code) is not None for code in TESTS_OF)


def test_programs_see_the_gpus_that_are_tested_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet
) -> None:
    found = ran(tmp_path, monkeypatch, 'echo "$CUDA_VISIBLE_DEVICES $*"', two)
    assert [r.detail for r in found if r.test != "peer_ipc"] == [
        "GPU-0 0",
        "GPU-1 0",
        "GPU-0,GPU-1 0 1",
        "GPU-1,GPU-0 0 1",
        "GPU-0,GPU-1 0 1 libnccl.so.2",
    ]


def test_a_gpu_that_the_server_would_not_see_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    found = ran(tmp_path, monkeypatch, "echo passed", two, {"CUDA_VISIBLE_DEVICES": "1"})
    assert [(r.test, r.gpus) for r in found] == [("smoke", (1,))]
    assert [result(code, facts(active=ok(found))).status for code in ("218", "403", "219")] == ["ok", "skipped", "skipped"]


@pytest.mark.parametrize(
    ("variable", "shown"),
    [(None, [0, 1]), ("1,0", [1, 0]), ("GPU-1", [1]), ("0,-1,1", [0]), ("", []), ("0, 1", [0, 1]), ("GPU-", []), ("7,0", [])],
)
def test_what_cuda_shows(variable: str | None, shown: list[int], two: GpuSet) -> None:
    assert [g.index for g in active.visible(two.gpus, variable)] == shown


def test_an_all_reduce_that_adds_up_wrong_or_never_ends() -> None:
    def case(outcome: Literal["wrong-data", "hung"]) -> CheckResult:
        one = GpuTest(test="all_reduce", gpus=(0, 1), outcome=outcome, detail="rank 1: 9 sums are wrong", took_s=2.0)
        return result("219", facts(active=ok((one,))))

    (wrong,), (hung,) = case("wrong-data").findings, case("hung").findings
    assert wrong.title == "An all-reduce over 2 GPUs adds up wrong"
    assert "NCCL_P2P_DISABLE=1" in wrong.next_steps[0]
    assert "reset them" in hung.next_steps[0]


@pytest.mark.parametrize(
    ("detail", "step"),
    [
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable", "install gcc"),
        # As a real one ended with CC=/nonexistent/cc.
        ("FileNotFoundError: [Errno 2] No such file or directory: '/nonexistent/cc'", "install gcc"),
        ("triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error", "pip show torch triton"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/cuda/bin/ptxas'", "pip show torch triton"),
    ],
)
def test_what_a_triton_that_does_not_compile_lacks(detail: str, step: str) -> None:
    one = GpuTest(test="triton", gpus=(0,), outcome="failed", detail=detail, took_s=2.0)
    (made,) = result("223", facts(active=ok((one,)))).findings
    assert step in made.next_steps[0]


FORKS = """
import os, time
os.fork()
while True:
    time.sleep(60)
"""
REAPER = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
subprocess.run([sys.executable, *sys.argv[1:]], check=True)
try:
    print("left", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("none left")
"""


def test_nothing_is_left_of_a_test_that_hung(tmp_path: Path) -> None:
    """Whatever takes orphans in finds none: a container's first process may not wait for them."""
    program = tmp_path / "program.py"
    program.write_text(FORKS)
    probe = str(asset("probes", "run_gpu_program.py"))
    arguments = [probe, "--limit", "1", "--capability", "90", str(program), "GPU-0"]
    ended = subprocess.run([sys.executable, "-c", REAPER, *arguments], capture_output=True, text=True, timeout=60)
    answer, left = ended.stdout.splitlines()
    assert '"outcome": "hung"' in answer
    assert left == "none left"


def test_triton_is_tried_in_the_servers_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    """This interpreter has no torch: the script says so itself, and that is no fault of the GPUs."""
    package = Package(name="triton", origin="/site-packages/triton/__init__.py")
    environment = msgspec.structs.replace(bare_environment(), python=sys.executable, packages=(package,))
    monkeypatch.setenv("PYTHONPATH", str(broken_package(tmp_path, "torch")))
    monkeypatch.setenv("NVCC", str(tmp_path / "none"))
    found = active.run(two, environment, {})
    assert isinstance(found, Ok)
    assert {(r.outcome, r.detail) for r in found.value if r.test == "triton"} == {("not-built", "no CUDA in this build of torch")}
    assert result("223", facts(active=found)).status == "unknown"


def bare_environment() -> Environment:
    return Environment(python="", version="3.11", prefix="/", path=(), extension_suffixes=(), distributions=(), packages=())


def broken_package(directory: Path, name: str) -> Path:
    (directory / f"{name}.py").write_text("raise ImportError('no CUDA in this build of torch')")
    return directory


def test_nothing_is_tried_after_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    found = ran(
        tmp_path,
        monkeypatch,
        'case "$0 $CUDA_VISIBLE_DEVICES" in *peer_copy*0*1) echo copying; exec tail -f /dev/null;; esac',
        two,
    )
    assert [(r.test, r.gpus, r.outcome) for r in found][2:] == [("peer_copy", (0, 1), "hung")]
    (made,) = result("403", facts(active=ok(found))).findings
    assert "from GPU 0 to GPU 1 never ends" in made.title
    assert "reset them" in made.next_steps[0]
    assert found[-1].detail == "not done after 1 s: copying"
    assert "peer_copy, which never ended" in result("219", facts(active=ok(found))).detail


def test_wrong_data_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    found = ran(tmp_path, monkeypatch, 'case "$0" in *peer*) echo 7 of 9 words are wrong; exit 2;; esac', two)
    made = result("403", facts(active=ok(found))).findings
    assert len(made) == 4
    assert made[0].evidence[0].excerpt == "7 of 9 words are wrong"
    assert (made[0].severity, made[0].confidence) == ("error", "proven")


def test_what_the_driver_denies_is_no_fault_and_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet
) -> None:
    found = ran(tmp_path, monkeypatch, 'case "$0" in *peer_copy*) exit 4;; esac', two)
    assert {r.test for r in found} == {"smoke", "peer_copy", "all_reduce"}
    assert result("403", facts(active=ok(found))).status == "ok"


def test_a_program_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    found = ran(tmp_path, monkeypatch, "kill -SEGV $$", two)
    assert {(r.outcome, r.detail) for r in found} == {("failed", "killed by SIGSEGV")}
    assert [f.title for f in result("218", facts(active=ok(found))).findings] == [
        f"A small program on GPU {i} fails" for i in (0, 1)
    ]


def test_without_a_compiler_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    monkeypatch.setenv("NVCC", str(tmp_path / "none"))
    found = active.run(two, None, {})
    assert isinstance(found, Ok)
    assert result("403", facts(active=found)).status == "unknown"


def test_gpus_of_several_kinds_are_not_guessed_about() -> None:
    assert isinstance(active.run(gpu_set(gpu(0), gpu(1, capability=ok("9.0"))).value, None, {}), Failed)


def test_it_is_left_out_unless_asked_for() -> None:
    assert result("403", facts()).status == "skipped"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("source", [p for p in assets("kernels") if p.suffix == ".cu"], ids=lambda p: p.name)
def test_the_programs_compile(source: Path, tmp_path: Path) -> None:
    command = ["nvcc", "-O1", "-gencode", "arch=compute_90,code=sm_90", "-o", str(tmp_path / "program"), str(source)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert made.returncode == 0, made.stderr
