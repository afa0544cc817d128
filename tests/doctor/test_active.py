"""The tests that use GPUs, with a compiler that makes programs which pass, lie, fail or hang; and the real compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpudiag.assets import assets
from gpudiag.doctor import active
from gpudiag.model.facts import GpuSet, PeerCopy
from gpudiag.model.reading import Failed, Ok
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


def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, gpus: GpuSet) -> tuple[PeerCopy, ...]:
    compiler = tmp_path / "nvcc"
    compiler.write_text(COMPILER.format(program=program))
    compiler.chmod(0o755)
    monkeypatch.setenv("NVCC", str(compiler))
    monkeypatch.setattr(active, "_RUN_S", 1.0)
    found = active.run(gpus)
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
    ]
    assert result("403", facts(active=ok(found))).status == "ok"


def test_nothing_is_tried_after_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    found = ran(tmp_path, monkeypatch, 'case "$0 $*" in *peer_copy*0*1) exec tail -f /dev/null;; esac', two)
    assert [(r.test, r.gpus, r.outcome) for r in found][2:] == [("peer_copy", (0, 1), "hung")]
    (made,) = result("403", facts(active=ok(found))).findings
    assert "from GPU 0 to GPU 1 never ends" in made.title
    assert "reset them" in made.next_steps[0]


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
    assert {r.test for r in found} == {"smoke", "peer_copy"}
    assert result("403", facts(active=ok(found))).status == "ok"


def test_a_program_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    found = ran(tmp_path, monkeypatch, "kill -SEGV $$", two)
    assert {(r.outcome, r.detail) for r in found} == {("failed", "killed by SIGSEGV")}
    assert [f.title for f in result("218", facts(active=ok(found))).findings] == [
        f"A small program on GPU {i} fails" for i in (0, 1)
    ]


def test_without_a_compiler_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: GpuSet) -> None:
    monkeypatch.setenv("NVCC", str(tmp_path / "none"))
    found = active.run(two)
    assert isinstance(found, Ok)
    assert result("403", facts(active=found)).status == "unknown"


def test_gpus_of_several_kinds_are_not_guessed_about() -> None:
    assert isinstance(active.run(gpu_set(gpu(0), gpu(1, capability=ok("9.0"))).value), Failed)


def test_it_is_left_out_unless_asked_for() -> None:
    assert result("403", facts()).status == "skipped"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("source", [p for p in assets("kernels") if p.suffix == ".cu"], ids=lambda p: p.name)
def test_the_programs_compile(source: Path, tmp_path: Path) -> None:
    command = ["nvcc", "-O1", "-gencode", "arch=compute_90,code=sm_90", "-o", str(tmp_path / "program"), str(source)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert made.returncode == 0, made.stderr
