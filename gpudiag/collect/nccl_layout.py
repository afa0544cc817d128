"""Where NCCL keeps its communicators: addresses and field offsets of the libraries whose build-id is known."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

MAGIC: Final = 0x0280028002800280
"""NCCL_MAGIC, the first and the last word of every live `struct ncclComm` (NCCL 2.30.7, src/include/comm.h)."""

FIELDS: Final = (
    "startMagic",
    "commHash",
    "rank",
    "nRanks",
    "cudaDev",
    "nvmlDev",
    "asyncResult",
    "abortFlag",
    "initState",
    "finalizeCalled",
    "seqNumber",
    "endMagic",
)
OPTIONAL_FIELDS: Final = ("hostCountersBlock",)
SYMBOLS: Final = ("nNcclComms", "ncclComms")
"""The table of RAS (src/ras/): an int, and a pointer to an array of `struct ncclComm*`. Both symbols are local, in .symtab."""


class Layout(Struct, frozen=True, kw_only=True):
    """One build of the library. `symbols` are addresses relative to where the file is mapped, `offsets` are in bytes.

    `verified`: its counts were seen to equal those of NCCL's own RAS on a live and on a hung job.
    """

    symbols: dict[str, int]
    offsets: dict[str, int]
    version: str | None = None
    verified: bool = False
    shipped: bool = False


def _layout(version: str, symbols: tuple[int, int], offsets: tuple[int, ...], *, verified: bool = False) -> Layout:
    names = FIELDS + OPTIONAL_FIELDS
    return Layout(
        symbols=dict(zip(SYMBOLS, symbols, strict=True)),
        offsets=dict(zip(names, offsets, strict=False)),
        version=version,
        verified=verified,
        shipped=True,
    )


SHIPPED: Final[dict[str, Layout]] = {
    "9fcf74d93a8c3605bf7718f594d0a24366e38536": _layout(
        "2.28.9",
        (0xB72DC44, 0xB72DC48),
        (0, 1066184, 1066192, 1066196, 1066200, 1066204, 1069044, 1069048, 1075672, 1075676, 1075728, 1082960),
        verified=True,
    ),
    "a2c825116a308c48453d420d773412cbe513df0a": _layout(
        "2.30.7",
        (0xC3E45A4, 0xC3E45A8),
        (0, 1181416, 1181424, 1181428, 1181432, 1181436, 1184292, 1184296, 1191520, 1191524, 1191576, 1199736),
    ),
    "ef499dcea939dc594e1f28f9a53cc46da3e41399": _layout(
        "2.32.3",
        (0x106F2904, 0x106F2908),
        (0, 1181408, 1181416, 1181420, 1181424, 1181428, 1185144, 1185152, 1193744, 1193748, 1193800, 1196528, 1194912),
    ),
}
"""By build-id: x86-64 wheels nvidia-nccl-cu13 on PyPI. Offsets from their DWARF, addresses from their .symtab."""
