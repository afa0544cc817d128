"""What the memory map of a process says: which shared memory, libraries and Python it has."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudiag.collect.procfs import text

_LIBRARY = re.compile(
    rb"/(?:libnccl|librccl|libtorch|libc10|libgloo|libcuda\.|libcudart|libnvshmem|libnixl|libucp|libzmq|libibverbs"
    rb"|libpython|_zmq|tvm_ffi|flashinfer|deep_ep|deep_gemm|sgl_kernel|_C\.abi3|_C\.cpython)[^/]*$"
)
_ZMQ_WHEEL = re.compile(rb"/pyzmq\.libs/|/zmq/backend/")
_EXTENSION = re.compile(rb"\.cpython-3(\d{1,2})[a-z]*-")
_PYTHON_FILE = re.compile(rb"/(?:lib)?python3\.(\d{1,2})[a-z]*(?:\.so[0-9.]*)?$")
_DELETED = b" (deleted)"
_MOST_NAMES = 512


class Mapped(NamedTuple):
    """Names found in /proc/PID/maps, each once, sorted. `python_version` is 'major.minor'."""

    shared_memory: tuple[str, ...]
    libraries: tuple[str, ...]
    python_version: str | None


def parse_maps(raw: bytes) -> Mapped:
    """Distinct mapped files of a maps text; a last line cut by a read limit is ignored."""
    paths = _paths(raw)
    shared = {p for p in paths if p.startswith((b"/dev/shm/", b"/memfd:", b"/SYSV"))}
    plain = {p.removesuffix(_DELETED) for p in paths - shared}
    libraries = {p for p in plain if _LIBRARY.search(p) or _ZMQ_WHEEL.search(p)}
    return Mapped(_names(shared), _names(libraries), _python_version(plain))


def _paths(raw: bytes) -> set[bytes]:
    found: set[bytes] = set()
    last = b""
    for line in raw.split(b"\n")[:-1]:
        slash = line.find(b"/")
        if slash > 0 and (path := line[slash:]) != last:
            found.add(path)
            last = path
    return found


def _names(paths: set[bytes]) -> tuple[str, ...]:
    return tuple(sorted(text(p) for p in paths)[:_MOST_NAMES])


def _python_version(paths: set[bytes]) -> str | None:
    minors = [m.group(1) for p in paths if (m := _PYTHON_FILE.search(p))]
    if not minors:
        minors = [m.group(1) for p in paths if (m := _EXTENSION.search(p))]
    if not minors:
        return None
    return f"3.{int(max(set(minors), key=minors.count))}"
