"""NVML through the probe: a real library with its interface, that answers, refuses, mismatches or hangs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudiag.doctor import gpus
from gpudiag.doctor.reads import Root
from gpudiag.model.facts import GpuSet
from gpudiag.model.reading import Failed, Ok, Unavailable

CC = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(CC is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).parent / "nvml.c"
    subprocess.run([str(CC), "-shared", "-fPIC", "-o", str(path), str(source)], check=True, timeout=60)
    return path


@pytest.fixture
def found(library: Path, monkeypatch: pytest.MonkeyPatch) -> GpuSet:
    monkeypatch.setenv("GPUDIAG_NVML_LIBRARY", str(library))
    reading = gpus.gpus(Root())
    assert isinstance(reading, Ok), reading
    return reading.value


def test_what_the_driver_says(found: GpuSet) -> None:
    assert (found.driver.version, found.driver.cuda) == ("580.159.04", "13.0")
    first = found.gpus[0]
    assert (first.uuid, first.name, first.bus_id) == ("GPU-0", "NVIDIA Test", "0000:65:00.0")
    values = [first.capability, first.memory_bytes, first.memory_used_bytes, first.utilization_percent, first.compute_mode]
    assert [v.value for v in values if isinstance(v, Ok)] == ["12.0", 1000, 300, 42, 3]
    assert isinstance(first.nvlinks, Ok)
    assert first.nvlinks.value == (True, False, True)
    assert isinstance(first.rows_pending, Ok)
    assert first.rows_pending.value


def test_an_older_name_of_a_function_is_tried(found: GpuSet) -> None:
    reasons = found.gpus[0].clocks_event_reasons
    assert isinstance(reasons, Ok)
    assert reasons.value == 0x48


def test_a_refusal_is_unavailable_and_not_zero(found: GpuSet) -> None:
    assert isinstance(found.gpus[0].ecc_uncorrected, Ok)
    assert found.gpus[1].ecc_uncorrected == Unavailable(reason="NVML: not supported by this GPU", help="")
    assert isinstance(found.gpus[0].fabric_state, Unavailable)


def test_mig_that_a_gpu_does_not_know_is_off(found: GpuSet) -> None:
    assert isinstance(found.gpus[0].mig, Ok)
    assert found.gpus[0].mig.value is False


def test_processes_are_named_where_their_pid_is_visible(found: GpuSet) -> None:
    processes = found.gpus[0].processes
    assert isinstance(processes, Ok)
    (process,) = processes.value
    assert (process.pid, process.memory_bytes) == (os.getpid(), 123)
    assert process.name


def test_peers_in_both_directions(found: GpuSet) -> None:
    assert [(p.source, p.target, p.read, p.write) for p in found.peers] == [(0, 1, 4, 5), (1, 0, 0, 0)]


def test_a_library_of_another_version_says_so(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDIAG_NVML_LIBRARY", str(library))
    monkeypatch.setenv("FAKE_NVML", "mismatch")
    reading = gpus.gpus(Root())
    assert isinstance(reading, Unavailable)
    assert "version mismatch" in reading.reason


def test_a_driver_that_never_answers_is_left_behind(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDIAG_NVML_LIBRARY", str(library))
    monkeypatch.setenv("FAKE_NVML", "hang")
    monkeypatch.setattr(gpus, "_LIMIT_S", 1.0)
    reading = gpus.gpus(Root())
    assert isinstance(reading, Failed)
    assert "within 1 s" in reading.error


def test_no_driver_is_unavailable_with_a_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUDIAG_NVML_LIBRARY", str(tmp_path / "none.so"))
    reading = gpus.gpus(Root())
    assert isinstance(reading, Unavailable)
    assert "nvidia-smi" in reading.help
