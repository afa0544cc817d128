"""NCCL communicators as the memory of a process, or NCCL's RAS service, shows them."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

COLLECTIVES: Final = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
"""The order of `ncclComm.seqNumber` (NCCL 2.24 to 2.32, src/include/nccl_common.h: ncclFunc_t)."""


class Communicator(Struct, frozen=True, kw_only=True):
    """One rank's end of an NCCL communicator.

    `launched` counts the collectives of each kind in `COLLECTIVES` that this rank enqueued from the host. Not counted: Send
    and Recv, and everything replayed from a CUDA graph. `completed` (NCCL 2.32 with NCCL_PROGRESS_COUNTERS=1) counts work
    that finished on the device, per channel group; None where the library keeps no such counters.
    """

    hash: str
    """The 64-bit commHash in hexadecimal; equal on all ranks of a communicator."""
    rank: int
    size: int
    cuda_device: int
    nvml_device: int
    launched: tuple[int, ...]
    async_error: int = 0
    """ncclResult_t: 0 success, 7 in progress."""
    aborted: bool | None = None
    init_state: int = 0
    """ncclResult_t of the initialisation: 0 done, 7 in progress."""
    finalizing: bool = False
    completed: tuple[int, ...] | None = None

    @property
    def total(self) -> int:
        """Collectives launched, of every kind."""
        return sum(self.launched)

    def by_name(self) -> dict[str, int]:
        return dict(zip(COLLECTIVES, self.launched, strict=False))


class Nccl(Struct, frozen=True, kw_only=True):
    """NCCL in one process: one entry for each copy of the library that is mapped.

    `stable` is whether two reads, one right after the other, agreed; a torn read is not used for a verdict.
    """

    library: str
    build_id: str
    communicators: tuple[Communicator, ...]
    version: str | None = None
    source: Literal["memory", "ras"] = "memory"
    layout: Literal["table", "dwarf", "ras"] = "table"
    """Where the field offsets came from: those shipped for this build-id, or the library's own debug information."""
    verified: bool = True
    """Whether this layout was compared with NCCL's own RAS on a live job; what was never seen live says so."""
    stable: bool = True


class MissingRank(Struct, frozen=True, kw_only=True):
    """A rank that RAS could not reach."""

    rank: int
    host: str
    pid: int
    cuda_device: int
    nvml_device: int
    unresponsive: bool = False
    dead: bool = False


class RasCommunicator(Struct, frozen=True, kw_only=True):
    """A communicator in an answer of RAS: which processes reported, and who is missing."""

    hash: str
    size: int
    pids: dict[int, int] = {}
    """pid by rank, in the pid namespace of the reporting process."""
    missing: tuple[MissingRank, ...] = ()
