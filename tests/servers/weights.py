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
    header, tensors = _read(file)
    _write(file, {new if name == old else name: entry for name, entry in header.items()}, tensors)


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
    theirs, data = _read(target)
    entry = theirs["model.embed_tokens.weight"]
    first, last = entry["data_offsets"]
    half = first + (last - first) // entry["shape"][0] * (entry["shape"][0] // 2)
    header, tensors = _read(file)
    header["embed_tokens.weight"] = entry | {"data_offsets": [len(tensors), len(tensors) + last - first]}
    _write(file, header, tensors + data[half:last] + data[first:half])


def clear(file: Path, name: str) -> None:
    """Make a tensor all zeros."""
    _change(file, name, lambda data, _: bytes(len(data)))


def _change(file: Path, name: str, change: Callable[[bytes, int], bytes]) -> None:
    """Put other bytes, as many, in the place of a tensor's; `change` is given them and the number of rows."""
    header, tensors = _read(file)
    first, last = header[name]["data_offsets"]
    changed = change(tensors[first:last], header[name]["shape"][0])
    _write(file, header, tensors[:first] + changed + tensors[last:])


def _read(file: Path) -> tuple[dict[str, Any], bytes]:
    """The header, and the bytes of the tensors, in which its offsets count."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _write(file: Path, header: dict[str, Any], tensors: bytes) -> None:
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + tensors)
