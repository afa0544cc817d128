"""What cuda-gdb prints, as data: recorded output, altered output, and output that means nothing."""

from __future__ import annotations

import time

import pytest

from gpudiag.collect import cuda_gdb
from tests.kernel_dump.recorded import TEXTS, kernels, output


def test_a_kernel_with_its_source_line() -> None:
    (kernel,) = kernels("stuck_kernel", 1)
    assert (kernel.name, kernel.device, kernel.grid, kernel.status) == ("wait_for_flag", 1, 27, "Active")
    assert (kernel.grid_dim, kernel.block_dim, kernel.multiprocessors) == ("(1,1,1)", "(128,1,1)", 1)
    assert (kernel.function, kernel.file, kernel.line) == ("wait_for_flag", "/tmp/sk0.py", 7)
    assert kernel.source == "v = tl.atomic_add(p, 0)"


def test_a_kernel_without_source_lines_has_the_function_it_stood_in() -> None:
    (kernel,) = kernels("stuck_kernel", 0)
    assert (kernel.name, kernel.multiprocessors) == ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 24)
    assert (kernel.function, kernel.file, kernel.line) == ("ncclDevFunc_AllReduce_Sum_f32_RING_SIMPLE", None, None)


def test_a_gpu_without_a_kernel() -> None:
    assert kernels("missing_rank", 1) == ()


def test_no_table_is_not_no_kernel() -> None:
    """cuda-gdb says 'No CUDA kernels.' also where it could not open the dump."""
    with pytest.raises(cuda_gdb.CudaGdbError, match="File truncated"):
        cuda_gdb.parse("No CUDA kernels.\n", "Unable to open /tmp/core: File truncated\n")
    with pytest.raises(cuda_gdb.CudaGdbError, match="No such file"):
        cuda_gdb.parse("Opening GPU coredump: /x\nNo CUDA kernels.\n", "warning: a\n/x: No such file or directory.\n")
    with pytest.raises(cuda_gdb.CudaGdbError, match="no table"):
        cuda_gdb.parse("No CUDA kernels.\n", "")
    with pytest.raises(cuda_gdb.CudaGdbError, match="no table"):
        cuda_gdb.parse("", "")


def test_a_dump_that_is_cut_off_ends_cuda_gdb() -> None:
    """Version 13.0 fails an assertion of its own on the first megabytes of a dump."""
    stdout, stderr = ((TEXTS / f"cut_off.{kind}").read_text() for kind in ("txt", "err"))
    with pytest.raises(cuda_gdb.CudaGdbError, match="internal-error: initialize: Assertion"):
        cuda_gdb.parse(stdout, stderr)


def test_a_kernel_in_an_anonymous_namespace() -> None:
    (kernel,) = kernels("other_kernel", 1)
    assert (kernel.name, kernel.line) == ("at::cuda::(anonymous namespace)::spin_kernel", None)
    assert kernel.function == "at::cuda::(anonymous namespace)::spin_kernel"


def test_a_turn_that_is_refused_changes_nothing() -> None:
    """`cuda kernel 1` where there is only kernel 0, and the trace after it."""
    (kernel,) = kernels("refused_turn", 1)
    assert (kernel.name, kernel.file, kernel.line) == ("wait_for_flag", "/tmp/job/stuck0.py", 9)


def test_the_places_of_several_kernels_go_to_their_own() -> None:
    """Two rows and two turns, as `cuda kernel 1` makes one: built from both ranks' recorded output."""
    one, other = output("stuck_kernel", 1)[0], output("stuck_kernel", 0)[0]
    table, rows = one.splitlines(), other.splitlines()
    row = next(line for line in rows if "Active" in line).replace("*      0", "       1")
    turn = rows[1].replace("Current focus set to CUDA kernel 0", "Switching focus to CUDA kernel 1")
    first, second = cuda_gdb.parse("\n".join([*table, row, turn, rows[2]]), "")
    assert (first.name, first.line) == ("wait_for_flag", 7)
    assert (second.name, second.function, second.line) == (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "ncclDevFunc_AllReduce_Sum_f32_RING_SIMPLE",
        None,
    )


def test_a_frame_further_out_may_have_the_line() -> None:
    text = output("stuck_kernel", 1)[0].splitlines()
    inner = "#0  0x00007f0 in (anonymous namespace)::spin(int volatile*) (flag=0x7f00, n=(1, 2)) ()"
    text[2] = inner + "\n#1  0x00007f1 in void top_k<float, (bool)1>(float*, int) (p=0x1) at /srv/with at/top_k.cuh:41"
    (kernel,) = cuda_gdb.parse("\n".join(text), "")
    assert (kernel.function, kernel.file, kernel.line) == ("top_k<float, (bool)1>", "/srv/with at/top_k.cuh", 41)


@pytest.mark.parametrize(
    ("invocation", "name"),
    [
        ("void copy<float, (bool)1>(float*, int)", "copy<float, (bool)1>"),
        ("(anonymous namespace)::spin(int*)", "(anonymous namespace)::spin"),
        ("flashinfer::sampling::TopK<128u>(float*)", "flashinfer::sampling::TopK<128u>"),
        ("kernel_0d1d2de3d()", "kernel_0d1d2de3d"),
        ("triton_red_fused<<<(1,1,1),(128,1,1)>>> ()", "triton_red_fused"),
    ],
)
def test_names_are_without_parameters(invocation: str, name: str) -> None:
    text = output("stuck_kernel", 1)[0].replace("wait_for_flag()", invocation)
    assert cuda_gdb.parse(text, "")[0].name == name


def test_a_table_with_clusters_and_another_status() -> None:
    text = (
        output("stuck_kernel", 0)[0]
        .replace("(24,1,1) (544,1,1)", "(24,1,1) (4,1,1) (544,1,1)")
        .replace("Active", "Not Available")
    )
    (kernel,) = cuda_gdb.parse(text, "")
    assert (kernel.grid_dim, kernel.block_dim, kernel.status) == ("(24,1,1)", "(544,1,1)", "Not Available")


def test_hostile_output_is_bounded() -> None:
    row = next(line for line in output("stuck_kernel", 1)[0].splitlines() if "Active" in line)
    started = time.monotonic()
    many = cuda_gdb.parse("\n".join([row] * 10_000), "")
    long = cuda_gdb.parse(row + "<" * 1_000_000 + "\n[Current focus set to CUDA kernel 0,\n#0  " + "a (" * 500_000, "")
    assert time.monotonic() - started < 5
    assert len(many) == 64
    assert len(long[0].name) <= 300


def test_the_command_loads_nothing_else() -> None:
    command = cuda_gdb.command("/usr/bin/cuda-gdb", "/tmp/core", kernels=9)
    assert command[:4] == ["/usr/bin/cuda-gdb", "-nx", "-batch", "-iex"]
    assert "target cudacore /tmp/core" in command
    assert [c for c in command if c.startswith("cuda kernel")] == [f"cuda kernel {n}" for n in (1, 2, 3, 4)]
