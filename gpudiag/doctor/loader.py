"""Where the dynamic loader finds a library, without running it: ld.so(8), 'The dynamic linker/loader searches'."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct

from gpudiag.doctor import elf
from gpudiag.doctor.elf import Data
from gpudiag.doctor.reads import Root

_CACHE_MAGIC: Final = b"glibc-ld.so.cache1.1"
_CACHE_HEADER: Final = 48
_CACHE_ENTRY: Final = 24
_MAX_CACHE: Final = 16 << 20
_MAX_NAME: Final = 4096
_NEEDED, _STRTAB_END, _RPATH, _RUNPATH = 1, 0, 15, 29
_DEFAULTS: Final = ("lib64", "usr/lib64", "lib", "usr/lib")


class Dynamic(Struct, frozen=True, kw_only=True):
    """What a shared object asks of the loader, $ORIGIN resolved. RPATH comes before LD_LIBRARY_PATH, RUNPATH after it."""

    path: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def dynamic(path: str) -> Dynamic | None:
    """The dynamic section of a file; None for what has none. Raises OSError and ValueError (an empty file)."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        image = elf.read(data)
        if image is None or not image.ranges(".dynamic") or not image.ranges(".dynstr"):
            return None
        (at, size), (strings, _) = image.ranges(".dynamic")[0], image.ranges(".dynstr")[0]
        return _parse(data, at, min(at + size, len(data)), strings, path)


def _parse(data: Data, at: int, end: int, strings: int, path: str) -> Dynamic:
    found: dict[int, list[str]] = {_NEEDED: [], _RPATH: [], _RUNPATH: []}
    for place in range(at, end - 15, 16):
        tag, value = struct.unpack_from("<QQ", data, place)
        if tag == _STRTAB_END:
            break
        if tag in found:
            found[tag].append(bytes(data[strings + value : strings + value + _MAX_NAME]).partition(b"\0")[0].decode("latin-1"))
    origin = os.path.dirname(os.path.realpath(path))
    runpath = _directories(found[_RUNPATH], origin)
    # An RPATH is ignored where there is a RUNPATH.
    rpath = () if runpath else _directories(found[_RPATH], origin)
    return Dynamic(path=path, needed=tuple(found[_NEEDED]), rpath=rpath, runpath=runpath)


def _directories(values: list[str], origin: str) -> tuple[str, ...]:
    parts = [part for value in values for part in value.split(":") if part]
    return tuple(part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for part in parts)


class Loader:
    """The loader of this machine with these variables."""

    def __init__(self, root: Root, variables: Mapping[str, str]) -> None:
        self._root = root
        self._own = tuple(p for p in variables.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if p)
        self._preloaded = tuple(p for p in variables.get("LD_PRELOAD", "").replace(" ", ":").split(":") if p)

    def find(self, name: str, asked_by: Dynamic | None = None) -> tuple[str, str] | None:
        """The file that `name` leads to and by what, None if to nothing. A name with a slash is a path."""
        if "/" in name:
            return (name, "its path") if os.path.exists(name) else None
        for path in self._preloaded:
            if os.path.basename(path) == name and os.path.exists(path):
                return path, "LD_PRELOAD"
        rpath, runpath = (asked_by.rpath, asked_by.runpath) if asked_by is not None else ((), ())
        who = os.path.basename(asked_by.path) if asked_by is not None else ""
        for directories, why in ((rpath, f"RPATH of {who}"), (self._own, "LD_LIBRARY_PATH"), (runpath, f"RUNPATH of {who}")):
            for directory in directories:
                path = os.path.join(directory, name)
                if os.path.exists(path):
                    return path, why
        if name in self._cache:
            return self._cache[name], "ld.so.cache"
        return next(((str(p), "a default directory") for d in self._defaults if (p := Path(d, name)).exists()), None)

    @cached_property
    def _defaults(self) -> tuple[str, ...]:
        machine = os.uname().machine
        return tuple(str(self._root.at(d)) for d in (*(f"{d}/{machine}-linux-gnu" for d in ("lib", "usr/lib")), *_DEFAULTS))

    @cached_property
    def _cache(self) -> dict[str, str]:
        """Path by name of /etc/ld.so.cache; empty where there is none (musl) or it is of another form."""
        try:
            data = self._root.data("etc/ld.so.cache", _MAX_CACHE)
        except OSError:
            return {}
        start = data.find(_CACHE_MAGIC)
        if start < 0 or start + _CACHE_HEADER > len(data):
            return {}
        (count,) = struct.unpack_from("<I", data, start + len(_CACHE_MAGIC))
        found: dict[str, str] = {}
        for index in range(min(count, (len(data) - start - _CACHE_HEADER) // _CACHE_ENTRY)):
            _, key, value = struct.unpack_from("<iII", data, start + _CACHE_HEADER + index * _CACHE_ENTRY)
            # Offsets count from the magic, which another table may stand in front of.
            found.setdefault(_text(data, start + key), _text(data, start + value))
        return found


def _text(data: bytes, start: int) -> str:
    return data[start : start + _MAX_NAME].partition(b"\0")[0].decode("utf-8", "surrogateescape")
