"""Damage to the weights of a model: what a safetensors file holds is changed in place.

The file is a JSON header behind eight bytes of length, padded with blanks, and then the tensors' bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path


def rename_weight(file: Path, old: str, new: str) -> None:
    """Give a tensor another name."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = data[8 : 8 + length].replace(f'"{old}"'.encode(), f'"{new}"'.encode()).rstrip()
    header = header.ljust(-(-len(header) // 8) * 8)
    file.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])


def rotate_rows(file: Path, name: str) -> None:
    """Move each row of a tensor one place on."""
    _change(file, name, lambda data, rows: data[-len(data) // rows :] + data[: -len(data) // rows])


def clear(file: Path, name: str) -> None:
    """Make a tensor all zeros."""
    _change(file, name, lambda data, _: bytes(len(data)))


def _change(file: Path, name: str, change: Callable[[bytes, int], bytes]) -> None:
    """Put other bytes, as many, in the place of a tensor's; `change` is given them and the number of rows."""
    data = bytearray(file.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])[name]
    first, last = (8 + length + at for at in entry["data_offsets"])
    data[first:last] = change(bytes(data[first:last]), entry["shape"][0])
    file.write_bytes(data)
