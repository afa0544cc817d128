"""Architectures read from headers: hand-made files, what nvcc makes, and a released library against cuobjdump."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from gpudiag.doctor import fatbin
from gpudiag.model.library import Library
from tests.kernels import fatbins as made

DATA = Path(__file__).parent / "data"
STUB = 1500
NVCC = shutil.which("nvcc")


def read(data: bytes) -> Library:
    found = fatbin.scan_data(data, "lib.so")
    assert found is not None
    return found


def counts(library: Library) -> dict[str, int]:
    return {i.target.name: i.count for i in library.images}


def test_suffixes_kinds_and_header_sizes() -> None:
    one = made.fatbin(
        made.entry(made.CUBIN, 90, made.ARCH_SPECIFIC, header=80),
        made.entry(made.CUBIN, 120, made.FAMILY, header=112),
        made.entry(made.PTX, 80),
        made.entry(made.LTO, 75),
    )
    assert counts(read(one)) == {"sm_90a": 1, "sm_120f": 1, "compute_80": 1, "lto_75": 1}


def test_units_are_fatbins_not_images() -> None:
    both = made.fatbin(made.entry(made.CUBIN, 80), made.entry(made.CUBIN, 90))
    alone = made.fatbin(made.entry(made.CUBIN, 90))
    library = read(made.shared_object({".nv_fatbin": both + both + alone}))
    assert {tuple(t.name for t in u.targets): u.count for u in library.units} == {("sm_80", "sm_90"): 2, ("sm_90",): 1}
    assert counts(library) == {"sm_80": 2, "sm_90": 3}


def test_an_empty_cubin_of_the_device_link_is_no_support() -> None:
    code = made.fatbin(made.entry(made.CUBIN, 80))
    stub = made.fatbin(made.entry(made.CUBIN, 80, payload=STUB), made.entry(made.CUBIN, 120, payload=STUB))
    library = read(made.shared_object({".nv_fatbin": code + stub}))
    assert counts(library) == {"sm_80": 1}
    assert library.stubs == 1
    assert {i.target.name for i in library.stub_images} == {"sm_80", "sm_120"}


def test_leftovers_of_device_linking_count_in_an_object_file_only() -> None:
    linked, left = made.fatbin(made.entry(made.CUBIN, 80)), made.fatbin(made.entry(made.CUBIN, 120))
    assert counts(read(made.shared_object({".nv_fatbin": linked, "__nv_relfatbin": left}))) == {"sm_80": 1}
    assert counts(read(made.shared_object({"__nv_relfatbin": left}, kind=1))) == {"sm_120": 1}


def test_code_that_a_library_loads_by_itself_lies_in_large_data() -> None:
    """cuFFT 12: only what device linking leaves in .nv_fatbin, and 23,983 fatbins in .ldata."""
    stub, code = made.fatbin(made.entry(made.CUBIN, 75, payload=STUB)), made.fatbin(made.entry(made.CUBIN, 90))
    library = read(made.shared_object({".nv_fatbin": stub, ".lrodata": bytes(64), ".ldata": bytes(24) + code + bytes(8) + code}))
    assert (counts(library), library.stubs, library.fatbins) == ({"sm_90": 2}, 1, 2)
    assert "by itself" in library.notes[0]


def test_large_data_is_not_searched_where_the_code_is_in_its_place() -> None:
    one, other = made.fatbin(made.entry(made.CUBIN, 80)), made.fatbin(made.entry(made.CUBIN, 90))
    assert counts(read(made.shared_object({".nv_fatbin": one, ".ldata": other}))) == {"sm_80": 1}


def test_a_bare_cubin_tells_its_architecture_and_that_its_suffix_is_unknown() -> None:
    cubin = bytearray(made.shared_object({}))
    struct.pack_into("<H", cubin, 18, 190)
    struct.pack_into("<I", cubin, 48, 0x6007802)
    cubin[8] = 8
    library = read(bytes(cubin))
    assert counts(library) == {"sm_120": 1}
    assert "does not say" in library.notes[0]


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n" * 10, b"\x7fELF" + bytes(100), made.shared_object({".text": bytes(64)})])
def test_a_file_without_gpu_code_is_none(data: bytes) -> None:
    assert fatbin.scan_data(data, "x") is None


def test_no_cut_of_a_file_breaks_the_reader() -> None:
    whole = made.shared_object(
        {".nv_fatbin": made.fatbin(made.entry(made.CUBIN, 80, payload=64), made.entry(made.PTX, 90, payload=64))}
    )
    for length in range(0, len(whole), 7):
        fatbin.scan_data(whole[:length], "cut")


def test_an_entry_that_lies_about_its_size_ends_the_fatbin() -> None:
    good = made.entry(made.CUBIN, 80)
    bad = struct.pack("<HHIQ", 2, 0x0101, 3, 1 << 60) + bytes(48)
    library = read(made.fatbin(good, bad))
    assert counts(library) == {"sm_80": 1}
    assert any("does not parse" in note for note in library.notes)


def test_a_released_library_equals_cuobjdump(tmp_path: Path) -> None:
    name = "libnvjpeg-13.3.2.43"
    path = tmp_path / "libnvjpeg.so.13"
    path.write_bytes(gzip.decompress((DATA / f"{name}.headers.so.gz").read_bytes()))
    started = time.perf_counter()
    library = fatbin.scan(path)
    took_s = time.perf_counter() - started
    assert library is not None
    assert counts(library) == json.loads((DATA / f"{name}.cuobjdump.json").read_text())["images"]
    assert took_s < 0.5


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_what_nvcc_makes(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text('__global__ void k(float *x) { x[threadIdx.x] *= 2; }\nextern "C" void go(float *x) { k<<<1, 32>>>(x); }\n')
    wanted = {"sm_80": "compute_80", "sm_90a": "compute_90a", "sm_120f": "compute_120f", "compute_90": "compute_90"}
    targets = [f"-gencode=arch={arch},code={code}" for code, arch in wanted.items()]
    library = tmp_path / "k.so"
    command = [str(NVCC), "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-o", str(library), str(source), *targets]
    subprocess.run(command, check=True, capture_output=True, timeout=110)
    found = fatbin.scan(library)
    assert found is not None
    assert counts(found) == dict.fromkeys(wanted, 1)
