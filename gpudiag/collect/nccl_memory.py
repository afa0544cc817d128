"""Communicators of another process, read from its memory: nothing is stopped, signalled or asked."""

from __future__ import annotations

import errno
import struct
from typing import Final, NamedTuple

from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.nccl_layout import MAGIC, Layout
from gpudiag.model.communicator import COLLECTIVES, Communicator

MOST_SLOTS: Final = 65_536
MOST_RANKS: Final = 1 << 20
_COUNTER_GROUPS: Final = 16
"""ncclProgressCountersBlock.completedWorkCount (NCCL 2.32.3, DWARF)."""


class Communicators(NamedTuple):
    """What two reads in a row gave. `stable` is whether they agreed."""

    found: tuple[Communicator, ...]
    stable: bool


def read_communicators(memory: TargetMemory, base: int, layout: Layout) -> Communicators:
    """All communicators in the table of the library mapped at `base`, by hash and rank.

    They are read twice: a host thread may be launching meanwhile, or taking a communicator down. Raises ValueError if the
    table makes no sense for this layout, OSError as TargetMemory does.
    """
    first = _read(memory, base, layout)
    second = _read(memory, base, layout)
    return Communicators(second, first == second)


def _read(memory: TargetMemory, base: int, layout: Layout) -> tuple[Communicator, ...]:
    (slots,) = _unpack(memory, base + layout.symbols["nNcclComms"], "<i")
    if not 0 <= slots <= MOST_SLOTS:
        raise ValueError(f"a table of {slots} communicators: this is another layout than {layout.version or 'the one found'}")
    table = memory.pointer(base + layout.symbols["ncclComms"])
    if slots == 0 or table == 0:
        return ()
    pointers = struct.unpack(f"<{slots}Q", memory.read(table, 8 * slots))
    found = [c for pointer in pointers if pointer and (c := _communicator(memory, pointer, layout.offsets)) is not None]
    return tuple(sorted(found, key=lambda c: (c.hash, c.rank)))


def _communicator(memory: TargetMemory, address: int, offsets: dict[str, int]) -> Communicator | None:
    """None for a slot whose communicator was freed or is not built yet."""
    try:
        if not _magic(memory, address + offsets["startMagic"]) or not _magic(memory, address + offsets["endMagic"]):
            return None
        (number,) = _unpack(memory, address + offsets["commHash"], "<Q")
        rank, size, cuda, nvml = (
            _unpack(memory, address + offsets[f], "<i")[0] for f in ("rank", "nRanks", "cudaDev", "nvmlDev")
        )
        if not 0 <= rank < size <= MOST_RANKS:
            return None
        return Communicator(
            hash=f"{number:#x}",
            rank=rank,
            size=size,
            cuda_device=cuda,
            nvml_device=nvml,
            launched=_unpack(memory, address + offsets["seqNumber"], f"<{len(COLLECTIVES)}Q"),
            async_error=_unpack(memory, address + offsets["asyncResult"], "<i")[0],
            aborted=_abort_flag(memory, address + offsets["abortFlag"]),
            init_state=_unpack(memory, address + offsets["initState"], "<i")[0],
            finalizing=bool(_unpack(memory, address + offsets["finalizeCalled"], "<B")[0]),
            completed=_completed(memory, address + offsets["hostCountersBlock"]) if "hostCountersBlock" in offsets else None,
        )
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise
        return None


def _magic(memory: TargetMemory, address: int) -> bool:
    return memory.pointer(address) == MAGIC


def _abort_flag(memory: TargetMemory, address: int) -> bool | None:
    """`uint32_t* abortFlag`: None while it points nowhere."""
    pointer = memory.pointer(address)
    return bool(_unpack(memory, pointer, "<I")[0]) if pointer else None


def _completed(memory: TargetMemory, address: int) -> tuple[int, ...] | None:
    """NCCL 2.32 keeps these only with NCCL_PROGRESS_COUNTERS=1, in memory shared with the GPU, which may not be readable."""
    pointer = memory.pointer(address)
    if not pointer:
        return None
    try:
        return _unpack(memory, pointer, f"<{_COUNTER_GROUPS}Q")
    except OSError:
        return None


def _unpack(memory: TargetMemory, address: int, form: str) -> tuple[int, ...]:
    return struct.unpack(form, memory.read(address, struct.calcsize(form)))
