"""NCCL's state read from the memory of processes: a fake that lays out its tables, and real libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudiag.collect.deadline import Guard
from gpudiag.collect.dwarf_layout import describe
from gpudiag.collect.nccl_guarded import mapped_copies
from gpudiag.collect.nccl_layout import SHIPPED
from gpudiag.collect.nccl_layouts import Layouts
from gpudiag.collect.nccl_state import NcclReading, read_states
from gpudiag.model.communicator import Nccl
from gpudiag.model.reading import Ok, Unavailable
from tests.nccl.targets import PROGRAMS, fake, loading, slot

LIBRARIES = [Path(p) for p in os.environ.get("GPUDIAG_NCCL_LIBRARIES", "").split(":") if p]
"""Real libnccl.so.2 files, for the tests that hold the shipped table to them."""


def read(*pids: int, cache: Path | None = None) -> dict[int, NcclReading]:
    with Guard(5.0) as guard:
        return read_states(pids, guard, Layouts(cache or Path("/nonexistent")))


def only(reading: NcclReading) -> Nccl:
    assert isinstance(reading, Ok)
    (nccl,) = reading.value
    return nccl


@pytest.mark.parametrize("version", ["2.28.9", "2.30.7", "2.32.3"])
def test_every_field_of_every_shipped_layout(tmp_path: Path, version: str) -> None:
    slots = [slot(0xAE50CECA3B8107B8, 1, (1, 2, 3, 4, 20), **{"async": 7, "aborted": 1, "init": 7}), None, slot(5, 0)]
    with fake(tmp_path, version, slots) as target:
        nccl = only(read(target.pid)[target.pid])
    assert (nccl.version, nccl.layout, nccl.stable, nccl.verified) == (version, "table", True, version == "2.28.9")
    assert nccl.library == str(tmp_path / "libnccl.so.2")
    small, large = sorted(nccl.communicators, key=lambda c: c.rank)
    assert (small.hash, small.rank, small.size, small.aborted, small.init_state) == ("0x5", 0, 2, False, 0)
    assert (large.hash, large.rank, large.cuda_device, large.nvml_device) == ("0xae50ceca3b8107b8", 1, 1, 1)
    assert large.by_name() == {"Broadcast": 1, "Reduce": 2, "AllGather": 3, "ReduceScatter": 4, "AllReduce": 20}
    assert (large.async_error, large.aborted, large.init_state, large.total, large.completed) == (7, True, 7, 30, None)


def test_empty_freed_and_damaged_slots_are_left_out(tmp_path: Path) -> None:
    slots = [None, slot(1, broken="magic"), slot(2, broken="freed"), slot(3, rank=9), slot(4)]
    with fake(tmp_path, "2.28.9", slots) as target:
        nccl = only(read(target.pid)[target.pid])
    assert [c.hash for c in nccl.communicators] == ["0x4"]


def test_a_table_that_makes_no_sense_is_said_and_not_walked(tmp_path: Path) -> None:
    with fake(tmp_path, "2.28.9", [slot()], count=2_000_000_000) as target:
        reading = read(target.pid)[target.pid]
    assert "2000000000 communicators" in repr(reading)


def test_counts_move_between_looks(tmp_path: Path) -> None:
    with fake(tmp_path, "2.28.9", [slot(1, 0, (0, 0, 0, 0, 20))]) as target, Guard(5.0) as guard:
        layouts = Layouts(tmp_path)
        before = only(read_states([target.pid], guard, layouts)[target.pid])
        target.launch(0, 4)
        after = only(read_states([target.pid], guard, layouts)[target.pid])
    assert [c.launched for c in before.communicators] == [(0, 0, 0, 0, 20)]
    assert [c.launched for c in after.communicators] == [(0, 0, 0, 0, 21)]


def test_a_process_without_nccl_has_none_and_one_that_is_gone_says_so() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        there = read(process.pid)[process.pid]
        process.kill()
        process.wait(10)
    assert isinstance(there, Ok)
    assert there.value == ()
    gone = read(process.pid)[process.pid]
    assert isinstance(gone, Unavailable)
    assert "is gone" in gone.reason


def test_maps_lines() -> None:
    maps = (
        b"7f00-7f10 r-xp 00000000 08:01 42                         /x/y z/libnccl.so.2\n"
        b"7f10-7f20 rw-p 00001000 08:01 42                         /x/y z/libnccl.so.2\n"
        b"8f00-8f10 r--p 00000000 08:01 43 /opt/libnccl.so.2.30.7 (deleted)\n"
        b"9f00-9f10 r--p 00000000 08:01 43 /opt/libnccl-net.so\n"
        b"af00-af10 r--p 00000000 08:01 43 /opt/not_libnccl.so.2/x\n"
    )
    assert list(mapped_copies(maps)) == [(0x7F00, "/x/y z/libnccl.so.2"), (0x8F00, "/opt/libnccl.so.2.30.7")]


@pytest.fixture(scope="module")
def debug_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real shared library with debug information and a layout that no NCCL has."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    path = tmp_path_factory.mktemp("library") / "libnccl.so.2"
    command = ["gcc", "-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o", str(path), str(PROGRAMS / "fake_nccl.c")]
    subprocess.run(command, check=True, timeout=60)
    return path


def test_an_unknown_library_is_read_by_its_own_debug_information_and_remembered(debug_library: Path, tmp_path: Path) -> None:
    with loading(debug_library, (0xABC, 1, 4, 99)) as pid:
        nccl = only(read(pid, cache=tmp_path)[pid])
        (kept,) = tmp_path.iterdir()
        with Guard(5.0) as guard:
            again = only(read_states([pid], guard, Layouts(tmp_path, deadline_s=0.0))[pid])
    assert (nccl.version, nccl.layout, nccl.verified) == ("9.8.7", "dwarf", False)
    assert [(c.hash, c.rank, c.size, c.launched) for c in nccl.communicators] == [("0xabc", 1, 4, (0, 0, 0, 0, 99))]
    assert kept.name == f"{nccl.build_id}.json"
    assert again == nccl


def test_a_debug_reader_that_takes_too_long_is_killed_and_said(debug_library: Path, tmp_path: Path) -> None:
    with loading(debug_library, (1, 0, 2, 3)) as pid, Guard(5.0) as guard:
        reading = read_states([pid], guard, Layouts(tmp_path, deadline_s=0.0))[pid]
    assert isinstance(reading, Unavailable)
    assert "could not be read in 0 s" in reading.reason
    assert "service" in reading.help


def test_a_stripped_library_falls_back_with_the_reason(debug_library: Path, tmp_path: Path) -> None:
    if shutil.which("strip") is None:
        pytest.skip("needs strip")
    stripped = tmp_path / "libnccl.so.2"
    subprocess.run(["strip", "-o", str(stripped), str(debug_library)], check=True, timeout=60)
    with loading(stripped, (1, 0, 2, 3)) as pid:
        reading = read(pid, cache=tmp_path / "cache")[pid]
    assert isinstance(reading, Unavailable)
    assert "stripped of its symbol table" in reading.reason


def test_a_library_that_was_replaced_after_loading_is_not_described_by_the_new_file(debug_library: Path, tmp_path: Path) -> None:
    mine = tmp_path / "libnccl.so.2"
    shutil.copy(debug_library, mine)
    with loading(mine, (1, 0, 2, 3)) as pid:
        other = tmp_path / "other.c"
        other.write_text((PROGRAMS / "fake_nccl.c").read_text().replace("unused[72]", "unused[80]"))
        subprocess.run(
            ["gcc", "-g", "-shared", "-fPIC", "-Wl,--build-id", "-o", str(tmp_path / "new"), str(other)], check=True, timeout=60
        )
        (tmp_path / "new").rename(mine)
        reading = read(pid, cache=tmp_path / "cache")[pid]
    assert isinstance(reading, Unavailable)
    assert "replaced" in reading.reason or "No such file" in reading.reason


@pytest.mark.skipif(not LIBRARIES, reason="needs GPUDIAG_NCCL_LIBRARIES: paths of libnccl.so.2 from the wheels nvidia-nccl-cu13")
@pytest.mark.parametrize("path", LIBRARIES)
def test_the_shipped_table_is_what_the_wheel_says(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        described = describe(fd)
    finally:
        os.close(fd)
    shipped = SHIPPED[described.build_id]
    assert described.layout.offsets == shipped.offsets
    assert described.layout.symbols == shipped.symbols
    assert described.layout.version == shipped.version


@pytest.mark.skipif(not LIBRARIES, reason="needs GPUDIAG_NCCL_LIBRARIES")
@pytest.mark.parametrize("path", LIBRARIES)
def test_a_real_library_without_a_communicator(path: Path) -> None:
    with loading(path) as pid:
        nccl = only(read(pid)[pid])
    assert nccl.communicators == ()
    assert nccl.version in {layout.version for layout in SHIPPED.values()}
