"""Reads NCCL's state out of the target's memory. Runs only in the guarded child."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpudiag.collect import procfs
from gpudiag.collect.attempt import reading
from gpudiag.collect.elf_image import build_id
from gpudiag.collect.memory import TargetMemory
from gpudiag.collect.nccl_layout import SHIPPED
from gpudiag.collect.nccl_memory import read_communicators
from gpudiag.collect.nccl_request import NcclReply, NcclRequest, UnknownLibrary
from gpudiag.model.communicator import Nccl
from gpudiag.model.reading import NOT_ASKED, Ok

_MAPS_LIMIT: Final = 1 << 24
_LIBRARY: Final = re.compile(
    rb"^([0-9a-f]{1,16})-[0-9a-f]{1,16} r[^ ]{3} 0{8,16} \S+ \d+ +(/[^\n]*/libnccl\.so[^/\n]*)$", re.MULTILINE
)
_MOST_COPIES: Final = 8


class Mapped(NamedTuple):
    """One copy of libnccl: where its first byte is mapped, and the path that the kernel shows."""

    base: int
    path: str


def read_nccl(request: NcclRequest) -> NcclReply:
    """Communicators of every mapped copy of libnccl, and the copies whose layout is not known."""
    pid = request.pid
    mapped = reading(pid, lambda: tuple(mapped_copies(procfs.read_all(f"/proc/{pid}/maps", _MAPS_LIMIT))))
    if not isinstance(mapped, Ok):
        return NcclReply(nccl=mapped)
    if not mapped.value:
        return NcclReply(nccl=Ok(value=(), at=mapped.at, took_s=mapped.took_s))
    unknown: list[UnknownLibrary] = []
    state = reading(pid, lambda: _read(request, mapped.value, unknown), attach=True)
    return NcclReply(nccl=NOT_ASKED if unknown and isinstance(state, Ok) and not state.value else state, unknown=tuple(unknown))


def mapped_copies(maps: bytes) -> Iterator[Mapped]:
    """Copies of libnccl in a maps text, at most 8, each at the address of its first byte."""
    for match in list(_LIBRARY.finditer(maps))[:_MOST_COPIES]:
        yield Mapped(int(match.group(1), 16), procfs.text(match.group(2).removesuffix(b" (deleted)")))


def _read(request: NcclRequest, copies: tuple[Mapped, ...], unknown: list[UnknownLibrary]) -> tuple[Nccl, ...]:
    found: list[Nccl] = []
    with TargetMemory(request.pid) as memory:
        for copy in copies:
            identity = build_id(memory, copy.base) or ""
            layout = SHIPPED.get(identity) or request.layouts.get(identity)
            if layout is None:
                unknown.append(UnknownLibrary(path=copy.path, build_id=identity))
                continue
            communicators, stable = read_communicators(memory, copy.base, layout)
            found.append(
                Nccl(
                    library=copy.path,
                    build_id=identity,
                    version=layout.version,
                    communicators=communicators,
                    layout="table" if layout.shipped else "dwarf",
                    verified=layout.verified,
                    stable=stable,
                )
            )
    return tuple(found)
