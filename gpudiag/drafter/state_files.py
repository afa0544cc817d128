"""Files of hidden states, read without torch and without running what is in them.

speculators 0.9 and vLLM's ExampleHiddenStatesConnector write safetensors with `token_ids` [T] and `hidden_states` [T, n, H];
SpecForge 0.2 writes torch checkpoints (.ckpt) with `input_ids`, `loss_mask`, `hidden_state` [1, T, H] (the last one) and
`aux_hidden_state` [1, T, n * H].
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

from msgspec import Struct

from gpudiag.doctor.model_files import safetensors_header
from gpudiag.logs.pickles import Call, Named, NotPlainError, Outside, load_plain

CHUNK: Final = 4 << 20
_MAX_PICKLE: Final = 4 << 20
_WIDTHS: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}
_STORAGES: Final = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "BoolStorage": "BOOL",
    "ByteStorage": "U8",
}

_DAMAGED: Final = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)
"""What zipfile raises for an archive that is damaged, encrypted, or packed in a way it does not know."""


class Stored(Struct, frozen=True, kw_only=True):
    """A tensor of a file. Its bytes begin at `first` of the file, or of the member `member` of a zip archive."""

    dtype: str
    shape: tuple[int, ...]
    first: int
    size: int
    member: str | None = None


class StateFile:
    """One file of hidden states. Raises ValueError or OSError if it cannot be read as one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors = _checkpoint(path) if path.suffix == ".ckpt" else _safetensors(path)

    def pieces(self, tensor: Stored, limit: int | None = None) -> Iterator[bytes]:
        """The tensor's bytes in pieces of a few MiB, at most `limit` of them. Raises ValueError if the file ends before it."""
        wanted = tensor.size if limit is None else min(limit, tensor.size)
        with self.path.open("rb") as file:
            if tensor.member is None:
                file.seek(tensor.first)
                yield from _read(file, wanted, self.path)
                return
            try:
                with zipfile.ZipFile(file) as archive, archive.open(tensor.member) as member:
                    member.seek(tensor.first)
                    yield from _read(cast("BinaryIO", member), wanted, self.path)
            except _DAMAGED as error:
                raise ValueError(f"{self.path.name} is damaged: {str(error)[:100]}") from None


def _read(file: BinaryIO, wanted: int, path: Path) -> Iterator[bytes]:
    while wanted > 0:
        piece = file.read(min(wanted, CHUNK))
        if not piece:
            raise ValueError(f"{path.name} is cut off")
        wanted -= len(piece)
        yield piece


def _safetensors(path: Path) -> dict[str, Stored]:
    entries, begin = safetensors_header(path)
    size = path.stat().st_size
    found = {}
    for name, one in entries.items():
        if begin + one.last > size:
            raise ValueError(f"{path.name} is cut off")
        found[name] = _stored(path, name, one.dtype, one.shape, begin + one.first, one.last - one.first, None)
    return found


def _stored(path: Path, name: str, dtype: str, shape: tuple[int, ...], first: int, size: int, member: str | None) -> Stored:
    count = 1
    for n in shape:
        count *= n
    if count * _WIDTHS.get(dtype, 0) != size:
        raise ValueError(f"{path.name}: {name} of type {dtype} and shape {list(shape)} does not take {size} bytes")
    return Stored(dtype=dtype, shape=shape, first=first, size=size, member=member)


def _checkpoint(path: Path) -> dict[str, Stored]:
    """The tensors of a dictionary that torch.save wrote, from the description in its pickle."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((n for n in archive.namelist() if n.endswith("/data.pkl")), None)
            if name is None or archive.getinfo(name).file_size > _MAX_PICKLE:
                raise ValueError(f"{path.name} is no checkpoint of torch")
            held = load_plain(archive.read(name), describe=True)
            sizes = {one.filename: one.file_size for one in archive.infolist()}
    except (*_DAMAGED, NotPlainError) as error:
        raise ValueError(f"{path.name} is cut off, or no checkpoint of torch: {str(error)[:100]}") from None
    if not isinstance(held, dict):
        raise ValueError(f"{path.name} holds no dictionary")  # noqa: TRY004  what is in a file is a value
    prefix = name.removesuffix("data.pkl")
    tensors = ((str(key), _tensor(path, str(key), value, prefix, sizes)) for key, value in held.items())
    return {key: one for key, one in tensors if one is not None}


def _tensor(path: Path, name: str, value: object, prefix: str, sizes: dict[str, int]) -> Stored | None:
    """A tensor as `_rebuild_tensor_v2(storage, offset, shape, stride, ...)` describes it; None for something else."""
    if not isinstance(value, Call) or value.function != Named("torch._utils", "_rebuild_tensor_v2"):
        return None
    arguments = value.arguments
    if not isinstance(arguments, tuple) or len(arguments) < 4 or not isinstance(arguments[0], Outside):
        raise ValueError(f"{path.name}: {name} is described as no tensor is")
    id = arguments[0].id
    if not isinstance(id, tuple) or len(id) < 3 or not isinstance(id[1], Named) or id[1].name not in _STORAGES:
        raise ValueError(f"{path.name}: {name} lies in a storage of an unknown kind")
    offset, shape, stride = arguments[1:4]
    dtype, member = _STORAGES[id[1].name], f"{prefix}data/{id[2]}"
    if not _whole(offset, shape, stride):
        raise ValueError(f"{path.name}: {name} is a view, or has impossible numbers")
    count = 1
    for n in shape:
        count *= n
    width = _WIDTHS[dtype]
    if (offset + count) * width > sizes.get(member, -1):
        raise ValueError(f"{path.name}: {name} is larger than what is stored for it")
    return Stored(dtype=dtype, shape=shape, first=offset * width, size=count * width, member=member)


def _whole(offset: object, shape: object, stride: object) -> bool:
    """Whether these are a place, a shape and the strides of a tensor whose numbers lie one after the other."""
    if type(offset) is not int or offset < 0 or not isinstance(shape, tuple) or not isinstance(stride, tuple):
        return False
    if len(shape) != len(stride) or len(shape) > 8 or not all(type(n) is int and 0 <= n < 1 << 48 for n in (*shape, *stride)):
        return False
    step = 1
    for size, one in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and one != step:
            return False
        step *= size
    return True
