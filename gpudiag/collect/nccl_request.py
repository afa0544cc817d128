"""What the guarded child is asked about NCCL, and what it answers."""

from __future__ import annotations

from msgspec import Struct

from gpudiag.collect.nccl_layout import Layout
from gpudiag.model.communicator import Nccl
from gpudiag.model.reading import NOT_ASKED, Failed, Ok, Unavailable


class NcclRequest(Struct, frozen=True, kw_only=True, tag="nccl"):
    """Read the communicators of `pid`. `layouts` are those found at run time, by build-id; shipped ones are known."""

    pid: int
    layouts: dict[str, Layout] = {}


class UnknownLibrary(Struct, frozen=True, kw_only=True):
    """A mapped libnccl for whose build-id there is no layout."""

    path: str
    build_id: str


class NcclReply(Struct, frozen=True, kw_only=True, tag="nccl"):
    """One Nccl for each mapped copy whose layout is known."""

    nccl: Ok[tuple[Nccl, ...]] | Unavailable | Failed = NOT_ASKED
    unknown: tuple[UnknownLibrary, ...] = ()
