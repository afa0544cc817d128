"""NVIDIA's rules of compatibility, as a table."""

from __future__ import annotations

import pytest

from gpudiag.doctor import fatbin
from gpudiag.model.library import Target
from gpudiag.rules.kernels.backends import backend
from gpudiag.rules.kernels.runs_on import Way, coverage, parse_capability, runs_on
from tests.kernels import fatbins as made


@pytest.mark.parametrize(
    ("target", "capability", "way"),
    [
        (Target("cubin", 80), 80, "native"),
        (Target("cubin", 80), 86, "native"),
        (Target("cubin", 86), 80, "none"),
        # Loaded on a GPU of 9.0: refused with error 209.
        (Target("cubin", 80), 90, "none"),
        (Target("cubin", 75), 90, "none"),
        (Target("cubin", 90, "a"), 90, "native"),
        (Target("cubin", 90, "a"), 100, "none"),
        (Target("cubin", 120, "a"), 120, "native"),
        (Target("cubin", 120, "a"), 121, "none"),
        (Target("cubin", 120, "f"), 121, "native"),
        (Target("cubin", 121, "f"), 120, "none"),
        (Target("cubin", 100, "f"), 103, "native"),
        (Target("cubin", 100, "f"), 120, "none"),
        (Target("cubin", 87), 89, "none"),
        (Target("cubin", 87), 87, "native"),
        (Target("ptx", 80), 120, "jit"),
        (Target("ptx", 90), 89, "none"),
        (Target("ptx", 90, "a"), 100, "none"),
        (Target("ptx", 120, "f"), 121, "jit"),
        (Target("ltoir", 90), 90, "none"),
    ],
)
def test_runs_on(target: Target, capability: int, way: Way) -> None:
    assert runs_on(target, capability) == way


def test_coverage_counts_fatbins() -> None:
    native = made.fatbin(made.entry(made.CUBIN, 120), made.entry(made.PTX, 90))
    jit = made.fatbin(made.entry(made.PTX, 90))
    none = made.fatbin(made.entry(made.CUBIN, 90, made.ARCH_SPECIFIC))
    library = fatbin.scan_data(native + jit + none, "x.fatbin")
    assert library is not None
    covered = coverage(library, 120)
    assert (covered.native, covered.jit, covered.none, covered.way) == (1, 1, 1, "native")
    assert [t.name for t in covered.targets] == ["sm_120", "compute_90"]


@pytest.mark.parametrize(
    ("text", "capability"), [("12.0", 120), ("120", 120), ("sm_120a", 120), ("9.0", 90), ("twelve", None), ("", None)]
)
def test_names_of_capabilities(text: str, capability: int | None) -> None:
    assert parse_capability(text) == capability


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("/e/site-packages/sgl_kernel/sm100/common_ops.abi3.so", "basic kernels"),
        ("/e/site-packages/sgl_kernel/flash_ops.abi3.so", "fa3"),
        ("/e/site-packages/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "version 2"),
        ("/e/site-packages/nvidia/nccl/lib/libnccl.so.2", "NCCL"),
    ],
)
def test_known_libraries_have_words(path: str, role: str) -> None:
    known = backend(path)
    assert known is not None
    assert role in known.role
