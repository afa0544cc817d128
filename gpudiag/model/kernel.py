"""What a CUDA core dump says is resident on a GPU."""

from __future__ import annotations

from msgspec import Struct


class ResidentKernel(Struct, frozen=True, kw_only=True):
    """One kernel that was on the GPU when the dump was made, as cuda-gdb shows it.

    `name` is without parameters. `function`, `file` and `line` say where one of its warps stood: the innermost place that
    has a source line, where the kernel was compiled with them (Triton does so, nvcc with -lineinfo).
    """

    name: str
    device: int
    """CUDA's number of the GPU in the process that was dumped."""
    grid: int
    grid_dim: str
    block_dim: str
    status: str
    multiprocessors: int
    """How many of them held a block of it."""
    function: str | None = None
    file: str | None = None
    line: int | None = None
    source: str = ""
    """The text of that line, where the file was there to read."""


class KernelDump(Struct, frozen=True, kw_only=True):
    """The dump of one process. No kernels: nothing was resident."""

    pid: int
    path: str
    """The dump, as the process names it."""
    size_bytes: int
    kernels: tuple[ResidentKernel, ...]
    wrote_s: float
    """Seconds from the request until the dump was complete."""
    ended: bool
    """Whether the process was gone after it."""
