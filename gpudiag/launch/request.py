"""What the user asked for, and what the host has: all that a plan is made from besides the installed engine."""

from __future__ import annotations

from msgspec import Struct

from gpudiag.model.facts import ServedBy


class Request(Struct, frozen=True, kw_only=True):
    """The command line of `gpudiag launch`. Paths are absolute."""

    engine: ServedBy
    python: str
    model: str
    draft: str | None = None
    speculate: bool = True
    tensor_parallel: int | None = None
    port: int | None = None
    profiles: tuple[str, ...] = ()
    not_armed: frozenset[str] = frozenset()
    kernel_dump: bool = False
    arguments: tuple[str, ...] = ()
    """For the engine, as they are."""


class Host(Struct, frozen=True, kw_only=True):
    """The machine, as far as a plan depends on it."""

    has_gpu: bool
    cpus: tuple[int, ...]
    """Numbers of the CPUs that this process may run on."""
    numa_nodes: int
    ras_port: int
    run_id: str
    run_directory: str
