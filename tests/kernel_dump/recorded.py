"""What cuda-gdb 13.0 printed about the dumps of two ranks on two H200s (driver 580, torch 2.11), by scenario."""

from __future__ import annotations

from pathlib import Path

from gpudiag.collect import cuda_gdb
from gpudiag.model.kernel import KernelDump, ResidentKernel

TEXTS = Path(__file__).parent / "recorded"


def output(scenario: str, rank: int) -> tuple[str, str]:
    """Stdout and stderr."""
    stderr = TEXTS / f"{scenario}_rank{rank}.err"
    return (TEXTS / f"{scenario}_rank{rank}.txt").read_text(), stderr.read_text() if stderr.exists() else ""


def kernels(scenario: str, rank: int) -> tuple[ResidentKernel, ...]:
    return cuda_gdb.parse(*output(scenario, rank))


def dump(pid: int, scenario: str, rank: int) -> KernelDump:
    found = kernels(scenario, rank)
    return KernelDump(pid=pid, path=f"/tmp/core.{pid}", size_bytes=1, kernels=found, wrote_s=3.0, ended=bool(found))
