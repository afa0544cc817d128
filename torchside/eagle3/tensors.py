"""Reads and writes safetensors files without the package of that name: a header of JSON, then the bytes."""

from __future__ import annotations

import ctypes
import json
import os
import struct

import torch

_HEADER_BYTES = 100 << 20
"""The largest header that the safetensors library itself accepts."""
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {value: key for key, value in _TYPES.items()}


class BadFileError(Exception):
    """A file that is not what it should be. The text is one line for the user."""


class Tensors:
    """The tensors of all safetensors files in a directory, each loaded when it is asked for."""

    def __init__(self, directory):
        self.directory = directory
        self._where = {}
        files = sorted(name for name in os.listdir(directory) if name.endswith(".safetensors"))
        if not files:
            raise BadFileError(f"{directory} has no .safetensors file")
        for name in files:
            path = os.path.join(directory, name)
            header, start = read_header(path)
            for key, entry in header.items():
                if key != "__metadata__":
                    self._where[key] = (path, start, entry)

    def __contains__(self, name):
        return name in self._where

    def names(self):
        return sorted(self._where)

    def shape(self, name):
        return tuple(self._where[name][2]["shape"])

    def load(self, name):
        """One tensor, as it is stored. Raises BadFileError if it lies outside its file or has a type that is not served here."""
        if name not in self._where:
            raise BadFileError(f"{self.directory} has no tensor {name}")
        path, start, entry = self._where[name]
        return _load(path, start, name, entry)


def read_header(path):
    """The header's table and where the data begins."""
    with open(path, "rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else _HEADER_BYTES + 1
        if length > _HEADER_BYTES:
            raise BadFileError(f"{path} is no safetensors file")
        try:
            table = json.loads(file.read(length))
        except ValueError as error:
            raise BadFileError(f"{path} is no safetensors file: {error}") from None
    if not isinstance(table, dict):
        raise BadFileError(f"{path} has no table of tensors")
    return table, 8 + length


def read_file(path):
    """All tensors of one file, by name."""
    table, start = read_header(path)
    return {name: _load(path, start, name, entry) for name, entry in table.items() if name != "__metadata__"}


def _load(path, start, name, entry):
    kind = _TYPES.get(entry.get("dtype"))
    if kind is None:
        raise BadFileError(f"{name} in {path} has type {entry.get('dtype')}: a quantised checkpoint cannot be replayed here")
    first, last = entry["data_offsets"]
    count = 1
    for size in entry["shape"]:
        count *= size
    width = torch.empty((), dtype=kind).element_size()
    if last - first != count * width or first < 0 or start + last > os.path.getsize(path):
        raise BadFileError(f"{name} in {path} is cut off")
    if not count:
        return torch.empty(entry["shape"], dtype=kind)
    with open(path, "rb") as file:
        file.seek(start + first)
        data = bytearray(file.read(last - first))
    return torch.frombuffer(data, dtype=kind).view(entry["shape"])


def write_file(path, tensors, metadata=None):
    """Write tensors to a safetensors file, completely or not at all."""
    table, at = {"__metadata__": {"format": "pt", **(metadata or {})}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        table[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    partial = f"{path}.part"
    with open(partial, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for tensor in tensors.values():
            file.write(_bytes(tensor))
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _bytes(tensor):
    """The tensor's memory; numpy does not know bfloat16 and need not be there."""
    flat = tensor.detach().to("cpu").contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()) if flat.numel() else b""
