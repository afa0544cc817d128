"""The driver's child against a fake driver library: what is missing, what is lost, what hangs."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudiag.collect.nvml import DEADLINE, Nvml, has_driver
from gpudiag.model.gpu import GpuProcess
from gpudiag.model.reading import Failed, Ok, Unavailable
from gpudiag.model.snapshot import Observation, Snapshot
from gpudiag.session.load import load
from gpudiag.session.pipeline import reports_of, servers_of

RECORDINGS = Path(__file__).parents[1] / "recordings" / "gpu"
FAKE = Path(__file__).parent / "programs" / "fake_nvml.c"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    directory = tmp_path_factory.mktemp("driver")
    library = directory / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(FAKE)], check=True, timeout=60)
    return directory


@pytest.fixture
def fake(driver: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    pytest.importorskip("pynvml")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    return monkeypatch


@pytest.mark.usefixtures("fake")
def test_what_there_is_and_what_there_is_not() -> None:
    with Nvml(20.0, driver=True) as nvml:
        nvml.ask()
        first = nvml.answer()
        nvml.ask()
        second = nvml.answer()
    assert isinstance(first, Ok)
    assert isinstance(second, Ok)
    zero, one = first.value.gpus
    assert (zero.uuid, zero.pci, zero.name, zero.index) == ("GPU-fake-0", "0000:1b:00.0", "NVIDIA Fake", 0)
    assert (one.pci, one.utilisation_percent, one.memory_used_bytes, one.power_w) == ("0000:1c:00.0", 100, 10, 128.0)
    assert first.value.driver == "999.1"
    assert one.performance_state is None
    assert one.unread["performance_state"] == "Not Supported"
    assert "gpm" in one.unread
    assert second.value.gpus[1].unread.items() <= one.unread.items()


def test_a_lost_gpu_is_named_and_the_others_are_read(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_NVML_LOST", "0")
    with Nvml(20.0, driver=True) as nvml:
        nvml.ask()
        reading = nvml.answer()
    assert isinstance(reading, Ok)
    assert reading.value.lost == {0: "GPU is lost"}
    assert [g.index for g in reading.value.gpus] == [1]


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetUtilizationRates"])
def test_a_call_that_never_returns_is_left_behind_with_its_name(fake: pytest.MonkeyPatch, function: str) -> None:
    fake.setenv("FAKE_NVML_HANG", function)
    with Nvml(3.0, driver=True) as nvml:
        started = time.monotonic()
        nvml.ask()
        reading = nvml.answer()
        took_s = time.monotonic() - started
        nvml.ask()
        again = nvml.answer()
    assert isinstance(reading, Failed)
    assert reading.error.startswith(DEADLINE)
    assert reading.error.endswith("nvmlInit" if function == "nvmlInit" else "utilisation_percent of GPU 0")
    assert again == reading
    assert took_s < 6.0


def test_a_library_that_crashes_on_one_question_is_asked_for_less(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_NVML_CRASH", "nvmlDeviceGetNvLinkState")
    with Nvml(20.0, driver=True) as nvml:
        nvml.ask()
        reading = nvml.answer()
        nvml.ask()
        again = nvml.answer()
    assert isinstance(reading, Ok)
    assert isinstance(again, Ok)
    assert [(g.utilisation_percent, g.pcie) for g in reading.value.gpus] == [(0, None), (100, None)]


def test_a_library_that_always_crashes_is_given_up(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_NVML_CRASH", "nvmlDeviceGetUtilizationRates")
    with Nvml(20.0, driver=True) as nvml:
        nvml.ask()
        reading = nvml.answer()
    assert isinstance(reading, Failed)
    assert "died 4 times" in reading.error


def test_links_that_are_down_are_named(fake: pytest.MonkeyPatch) -> None:
    fake.delenv("FAKE_NVML_CRASH", raising=False)
    with Nvml(20.0, driver=True) as nvml:
        nvml.ask()
        reading = nvml.answer()
    assert isinstance(reading, Ok)
    links = [g.nvlink for g in reading.value.gpus]
    assert [(n.links_up, n.links_down, n.tx_kib) for n in links if n is not None] == [(4, (), 1000), (3, (3,), 1000)]


def test_the_instances_of_a_divided_gpu_have_names_and_processes_of_their_own(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_NVML_MIG", "1")
    with Nvml(20.0, driver=True) as nvml:
        nvml.ask()
        reading = nvml.answer()
    assert isinstance(reading, Ok)
    shown = [(g.uuid, g.index, g.pci, [p.pid for p in g.processes]) for g in reading.value.gpus]
    assert shown == [
        ("GPU-fake-0", 0, "0000:1b:00.0", []),
        ("GPU-fake-1", 1, "0000:1c:00.0", []),
        ("MIG-fake-0", 1, "0000:1c:00.0", [500]),
        ("MIG-fake-2", 1, "0000:1c:00.0", [502]),
    ]
    whole = reading.value.gpus[1]
    assert whole.unread["processes"].startswith("divided by MIG")


def mig_server() -> Observation:
    """The recorded busy group of two ranks, as if both had an instance of the first GPU."""
    seen = load(RECORDINGS / "h200x2" / "busy.gpudiag").observation
    (server,) = servers_of(seen)
    pids = [m.pid for m in server.ranks]

    def divided(snapshot: Snapshot) -> Snapshot:
        assert isinstance(snapshot.gpus, Ok)
        whole = replace(snapshot.gpus.value.gpus[0], processes=(), unread={"processes": "divided by MIG"})
        parts = tuple(
            replace(whole, uuid=f"MIG-{n}", gpm=None, utilisation_percent=None, processes=(GpuProcess(pid=pid),))
            for n, pid in enumerate(pids)
        )
        return replace(snapshot, gpus=replace(snapshot.gpus, value=replace(snapshot.gpus.value, gpus=(whole, *parts))))

    return Observation(snapshots=tuple(map(divided, seen.snapshots)))


def test_a_rank_is_on_the_instance_that_lists_it() -> None:
    """NCCL knows the number of the GPU only, which its instances share."""
    (report,) = reports_of(mig_server(), command="explain")
    assert report.target is not None
    assert sorted(w.gpu or "" for w in report.target.workers if w.rank.global_ is not None) == ["MIG-0", "MIG-1"]
    assert report.verdict.status != "finding"


def test_a_driver_that_is_not_loaded_says_so(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_NVML_BROKEN", "1")
    with Nvml(20.0, driver=True) as nvml:
        nvml.ask()
        reading = nvml.answer()
    assert isinstance(reading, Unavailable)
    assert "Driver Not Loaded" in reading.reason


def test_without_a_driver_no_child_is_started() -> None:
    with Nvml(driver=False) as nvml:
        nvml.ask()
        reading = nvml.answer()
    assert isinstance(reading, Unavailable)
    assert reading.reason == "no NVIDIA driver on this machine"


@pytest.mark.skipif(has_driver(), reason="there is a driver here")
def test_a_machine_without_a_driver_is_recognised() -> None:
    with Nvml() as nvml:
        nvml.ask()
        assert isinstance(nvml.answer(), Unavailable)
