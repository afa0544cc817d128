"""What CUDA core dumps say is resident on the GPUs, as edges: a collective waits for the rank whose kernel keeps it away.

A dump names the kernel. Whether that is a collective, which waits for other ranks, or one that only waits for itself, its
name tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpudiag.model.finding import Evidence
from gpudiag.model.kernel import KernelDump, ResidentKernel
from gpudiag.model.reading import Ok
from gpudiag.model.server import Member
from gpudiag.waits.context import Context, Edge
from gpudiag.waits.gpus import WAITING

SOURCE: Final = "device-dump"

_COLLECTIVE: Final = re.compile(
    # NCCL (2.19 and newer, and older), NVSHMEM, DeepEP, mscclpp
    r"nccl|nvshmem|deep_ep|mscclpp|internode::|intranode::"
    # the custom all-reduce of vLLM and SGLang, flashinfer's and TensorRT-LLM's, torch's symmetric memory
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|a2a|cross_device|one_?shot|two_?shot|multimem|symm_?mem|barrier"
    r"|(?:^|::)(?:send|recv|dispatch|combine)(?:_kernel)?\b",
    re.IGNORECASE,
)
"""Kernels that wait for other GPUs: their names in NCCL 2.28, vllm 0.33, sglang 0.5.23, flashinfer 0.6, torch 2.14."""


def is_collective(kernel: ResidentKernel) -> bool:
    """Whether a kernel waits for other ranks, by its name. One that may be is none that is stuck by itself."""
    return _COLLECTIVE.search(kernel.name) is not None


def dump_of(context: Context, pid: int) -> KernelDump | None:
    """The dump of a process, None where there is none."""
    reading = context.observation.last.kernels
    dumps = reading.value if isinstance(reading, Ok) else ()
    return next((d for d in dumps if d.pid == pid), None)


def ended(context: Context) -> bool:
    """Whether a dump took its process with it."""
    reading = context.observation.last.kernels
    return isinstance(reading, Ok) and any(d.ended for d in reading.value)


def stuck(context: Context, pid: int) -> ResidentKernel | None:
    """The kernel of a rank that is no collective; None where nothing was resident, or a collective alone."""
    dump = dump_of(context, pid)
    return next((k for k in dump.kernels if not is_collective(k)), None) if dump is not None else None


def waits_for_peers(context: Context, pid: int) -> ResidentKernel | None:
    """The collective in which a rank's GPU waits, if its dump shows nothing else there."""
    dump = dump_of(context, pid)
    if dump is None or not dump.kernels or not all(map(is_collective, dump.kernels)):
        return None
    return dump.kernels[0]


def place(kernel: ResidentKernel) -> str:
    """'wait_for_flag at /srv/ops.py:7'."""
    return f"{kernel.name} at {kernel.file}:{kernel.line}" if kernel.file else kernel.name


def evidence(context: Context, member: Member, kernel: ResidentKernel) -> Evidence:
    """That a kernel was resident on the GPU of a rank when its dump was made."""
    reading = context.observation.last.kernels
    where = f"; {kernel.file}:{kernel.line} {kernel.source}".rstrip() if kernel.file else ""
    grid = f"{kernel.name} grid {kernel.grid} {kernel.grid_dim} of {kernel.block_dim}, {kernel.status.lower()}"
    return Evidence(
        source=SOURCE,
        claim=f"the CUDA core dump of pid {member.pid} shows {place(kernel)} on its GPU",
        excerpt=f"{grid} on {kernel.multiprocessors} multiprocessors{where}",
        at=reading.at if isinstance(reading, Ok) else context.at,
    )


def edges(context: Context) -> Iterator[Edge]:
    """From GPUs that wait in a collective to those that hold another kernel, so that theirs cannot begin."""
    ranks = [m for m in context.server.ranks if (d := context.devices.get(m.pid)) is not None and d.state in WAITING]
    for one in ranks:
        inside = waits_for_peers(context, one.pid)
        for other in ranks if inside is not None else ():
            busy = stuck(context, other.pid)
            if inside is None or busy is None or not _together(context, one, other):
                continue
            yield context.node_edge(
                context.devices[one.pid].node,
                context.devices[other.pid].node,
                "collective",
                "arrive",
                evidence(context, one, inside),
                evidence(context, other, busy),
                need="reply",
            )


def _together(context: Context, one: Member, other: Member) -> bool:
    """Whether they may wait for each other: ranks of one communicator, or of one server where none was readable."""
    if not context.communicators:
        return True
    return any(g.end_of(one.pid) is not None and g.end_of(other.pid) is not None for g in context.communicators)
