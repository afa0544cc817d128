"""What the files of a model and of a drafter say: configuration, index and tensor headers. No tensor is loaded whole."""

from __future__ import annotations

import errno
import functools
import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from gpudiag.doctor.reads import bounded
from gpudiag.model.modelfiles import ModelConfig, ModelFiles, Tensor

_JSON_BYTES: Final = 256 << 20
_HEADER_BYTES: Final = 32 << 20
"""More than any shard has (some 120 bytes a tensor); the safetensors library itself stops at 100 MB."""
_MAX_DIMENSIONS: Final = 8
_PARTS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
_MAX_PARTS: Final = 8
_INDEXES: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS: Final = (".safetensors", ".bin", ".gguf", ".pt", ".pth")
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "tiktoken.model", "tekken.json")


def model(directory: Path | str) -> ModelFiles:
    """A model directory. Raises OSError if it is none, ValueError for a configuration that is no JSON object."""
    place = Path(directory)
    names = sorted(os.listdir(place))
    weights = [n for n in names if n.endswith(_WEIGHTS) and n not in ("training_args.bin", "optimizer.pt", "scheduler.pt")]
    wanted = _indexed(place, names)
    present = [n for n in weights if (place / n).exists()]
    return ModelFiles(
        path=str(place),
        config=config(place),
        weight_bytes=sum((place / n).stat().st_size for n in present),
        shards=len(present),
        missing=tuple(n for n in wanted if n not in names),
        short=tuple(n for n in present if _is_short(place / n)),
        broken_links=tuple(n for n in names if (place / n).is_symlink() and not (place / n).exists()),
        has_tokenizer=any(n in names for n in _TOKENIZERS),
    )


def _indexed(place: Path, names: list[str]) -> list[str]:
    """The weight files that the index names; empty without an index."""
    for index in _INDEXES:
        if index in names and (place / index).exists():
            table = object_in(place / index).get("weight_map")
            return sorted({str(f) for f in table.values()}) if isinstance(table, dict) else []
    return []


def _is_short(path: Path) -> bool:
    if path.suffix != ".safetensors":
        return path.stat().st_size == 0
    try:
        entries, start = safetensors_header(path)
    except ValueError:
        return True
    return path.stat().st_size < start + max((one.last for one in entries.values()), default=0)


class Entry(Struct, frozen=True):
    """A tensor in the header of a safetensors file; its bytes lie from `first` to `last` behind the header."""

    dtype: str
    shape: tuple[int, ...]
    first: int
    last: int


def safetensors_header(path: Path) -> tuple[dict[str, Entry], int]:
    """Every tensor of a safetensors file by name, and where the data begins. Raises ValueError for anything else."""
    stat = path.stat()
    return _header(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(8)
def _header(path: Path, changed_ns: int, size: int) -> tuple[dict[str, Entry], int]:  # noqa: ARG001  they tell the cache apart
    head = bounded(path, 8)
    if len(head) < 8:
        raise ValueError(f"{path} is cut off")
    (length,) = struct.unpack("<Q", head)
    if length > _HEADER_BYTES:
        raise ValueError(f"{path} is no safetensors file: a header of {length} bytes")
    data = bounded(path, 8 + length)[8:]
    if len(data) < length:
        raise ValueError(f"{path} is cut off")
    try:
        read = json.loads(data)
    except RecursionError as error:
        raise ValueError(f"{path} has a header nested too deep") from error
    except ValueError as error:
        raise ValueError(f"{path} has a header that is no JSON: {str(error)[:100]}") from error
    if not isinstance(read, dict):
        raise ValueError(f"{path} has no table of tensors")  # noqa: TRY004  what is in a file is a value
    return {name: _entry(path, name, one) for name, one in read.items() if name != "__metadata__"}, 8 + length


def _entry(path: Path, name: str, one: Any) -> Entry:
    try:
        entry = Entry(str(one["dtype"]), tuple(one["shape"]), *one["data_offsets"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: {name[:200]!r} is described as no tensor is") from error
    numbers = (*entry.shape, entry.first, entry.last)
    if (
        len(entry.shape) > _MAX_DIMENSIONS
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)
        or entry.first > entry.last
    ):
        raise ValueError(f"{path}: {name[:200]!r} has impossible numbers")
    return entry


def tensors(directory: Path) -> Iterator[Tensor]:
    """Every tensor of the safetensors files in a directory, from their headers."""
    for path in sorted(directory.glob("*.safetensors")):
        for name, one in safetensors_header(path)[0].items():
            yield Tensor(name=name, dtype=one.dtype, shape=one.shape, file=path.name)


def tensor_bytes(directory: Path, tensor: Tensor, start: int, count: int) -> bytes:
    """Bytes of one tensor from `start` on. Raises ValueError if they lie outside it."""
    entries, begin = safetensors_header(directory / tensor.file)
    entry = entries.get(tensor.name)
    if entry is None or start < 0 or entry.first + start + count > entry.last:
        raise ValueError(f"{tensor.name} is shorter than {start + count} bytes")
    with (directory / tensor.file).open("rb") as file:
        file.seek(begin + entry.first + start)
        data = file.read(count)
    if len(data) < count:
        raise ValueError(f"{tensor.file} is cut off")
    return data


def object_in(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ValueError for anything else."""
    try:
        read = json.loads(bounded(path, _JSON_BYTES))
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deep") from error
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(read, dict):
        raise ValueError(f"{path} holds no JSON object")  # noqa: TRY004  what is in a file is a value
    return read


def config(place: Path) -> ModelConfig:
    """The numbers of config.json, of the language model inside a multimodal one. Raises FileNotFoundError without one."""
    path = place / "config.json"
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no config.json", str(path))
    outer = object_in(path)
    inner = language_part(outer)
    quantization = outer.get("quantization_config") or inner.get("quantization_config")
    return ModelConfig(
        architectures=texts(outer.get("architectures")),
        model_type=text(outer.get("model_type")),
        hidden_size=number(inner.get("hidden_size")),
        vocab_size=number(inner.get("vocab_size")),
        layers=number(inner.get("num_hidden_layers")),
        max_positions=number(inner.get("max_position_embeddings")),
        quantization=text(quantization.get("quant_method")) if isinstance(quantization, dict) else None,
        dtype=text(inner.get("torch_dtype") or inner.get("dtype") or outer.get("torch_dtype") or outer.get("dtype")),
    )


def language_part(outer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that has the language model's numbers: itself, or the nested configuration of a multimodal model."""
    for _ in range(_MAX_PARTS):
        inner = next((part for name in _PARTS if isinstance(part := outer.get(name), dict)), None)
        if inner is None:
            break
        outer = inner
    return outer


def number(value: Any) -> int | None:
    """A whole number that 64 bits hold: a larger one is no size of anything, and breaks arithmetic with floats."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63 else None


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list; empty for anything else."""
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
