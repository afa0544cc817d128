"""Numbers in hidden states, from their bytes: are all finite, and how large are they. Fast without numpy."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Final

_INFINITE: Final = {
    # Bytes that the highest byte of an infinite number, or of one that is none, can be: sign and exponent.
    "BF16": (2, b"\x7f\xff"),
    "F32": (4, b"\x7f\xff"),
    "F16": (2, b"\x7c\x7d\x7e\x7f\xfc\xfd\xfe\xff"),
    "F64": (8, b"\x7f\xff"),
}


def not_finite(pieces: Iterable[bytes], dtype: str) -> int:
    """How many numbers are infinite or none (NaN). Pieces begin at a number. Raises ValueError for a type without such."""
    if dtype not in _INFINITE:
        raise ValueError(f"states of type {dtype}")
    width, marks = _INFINITE[dtype]
    rest = bytes(set(range(256)) - set(marks))
    found = 0
    for piece in pieces:
        high = piece[width - 1 :: width]
        # Deleting all other bytes is one pass in C; as a rule nothing is left.
        suspects = len(high.translate(None, rest))
        if suspects:
            found += (
                suspects if dtype == "F16" else _count(high, piece[width - 2 :: width], marks, 0xF0 if dtype == "F64" else 0x80)
            )
    return found


def _count(high: bytes, low: bytes, marks: bytes, bits: int) -> int:
    """Numbers whose exponent is all ones: these bits of the second byte belong to it."""
    return sum(low[i] & bits == bits for i, byte in enumerate(high) if byte in marks)


def numbers(data: bytes, dtype: str) -> array[float]:
    """The numbers themselves, for a few. Raises ValueError for another type than BF16, F16 and F32."""
    if dtype == "F32":
        found = array("f", data)
    elif dtype == "BF16":
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        found = array("f", bytes(wide))
    elif dtype == "F16":
        import struct

        return array("f", struct.unpack(f"<{len(data) // 2}e", data))
    else:
        raise ValueError(f"states of type {dtype}")
    if sys.byteorder == "big":
        found.byteswap()
    return found


def root_mean_square(values: Iterable[float]) -> float:
    """0 for nothing."""
    total, count = 0.0, 0
    for one in values:
        total += one * one
        count += 1
    return (total / count) ** 0.5 if count else 0.0
