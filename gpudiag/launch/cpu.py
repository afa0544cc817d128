"""What a host without a GPU needs besides the profile `cpu`: CPUs for each rank, where there are more ranks than NUMA nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpudiag.launch.builder import PlanBuilder
from gpudiag.launch.request import Host, Request

_BINDINGS: Final = {"sglang": "SGLANG_CPU_OMP_THREADS_BIND", "vllm": "VLLM_CPU_OMP_THREADS_BIND"}


def bind(builder: PlanBuilder, request: Request, host: Host, ranks: int) -> None:
    """Share the CPUs out. Both engines take one NUMA node a rank by themselves, and end with an assertion if there are fewer."""
    if host.has_gpu or ranks <= host.numa_nodes or ranks > len(host.cpus):
        return
    why = f"{ranks} ranks and {host.numa_nodes} NUMA node: the CPUs are shared out, one group a rank"
    builder.variable(_BINDINGS[request.engine], groups(host.cpus, ranks), why, "no GPU here")


def groups(cpus: Sequence[int], ranks: int) -> str:
    """'0-3|4-7': the CPUs in as many groups, each of neighbours where they are."""
    size = len(cpus) // ranks
    return "|".join(_ranges(cpus[n * size : (n + 1) * size]) for n in range(ranks))


def _ranges(cpus: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
