"""Damage to the weights of a model: what a safetensors file holds is changed in place.

The file is a JSON header behind eight bytes of length, padded with blanks, and then the tensors' bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any


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


def make_absolute(file: Path, vocabulary: int) -> None:
    """Have d2t hold target ids where engines read offsets from draft to target id.

    No id that comes of it is beyond the vocabulary: vLLM 0.32 dies of one ('index 1027 is out of bounds').
    """

    def changed(data: bytes, rows: int) -> bytes:
        offsets = struct.unpack(f"<{rows}q", data)
        return struct.pack(f"<{rows}q", *(min(i + offset, vocabulary - 1 - i) for i, offset in enumerate(offsets)))

    _change(file, "d2t", changed)


def add_other_embedding(file: Path, target: Path) -> None:
    """Give a drafter an embedding of its own: that of the target with each row moved half the vocabulary on."""
    entry, rows = _tensor(target, "model.embed_tokens.weight")
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    end = len(data) - 8 - length
    header["embed_tokens.weight"] = entry | {"data_offsets": [end, end + len(rows)]}
    text = json.dumps(header).encode()
    half = len(rows) // entry["shape"][0] * (entry["shape"][0] // 2)
    text = text.ljust(-(-len(text) // 8) * 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :] + rows[half:] + rows[:half])


def _tensor(file: Path, name: str) -> tuple[dict[str, Any], bytes]:
    """The entry of a tensor in the header, and its bytes."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entry: dict[str, Any] = json.loads(data[8 : 8 + length])[name]
    first, last = (8 + length + at for at in entry["data_offsets"])
    return entry, data[first:last]


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
