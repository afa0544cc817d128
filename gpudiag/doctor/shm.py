"""Shared memory and other file systems with their free space."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from gpudiag.doctor import probe
from gpudiag.doctor.reads import Root
from gpudiag.model.facts import Leftover, SharedMemory, Space
from gpudiag.model.reading import Ok

_LIMIT_S: Final = 10.0
_MAX_FILES: Final = 200
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_OURS: Final = ("nccl-", "psm_", "sem.", "vllm", "sglang", "torch_", "VLLM", "SGLANG")
"""Names that engines, NCCL, torch and Python's multiprocessing give their segments."""


def shared_memory(root: Root) -> SharedMemory:
    path = root.at("dev/shm")
    return SharedMemory(space=space(root, str(path)), leftovers=_leftovers(path) if root.real else ())


def space(root: Root, path: str) -> Space:
    """The file system that holds `path`, or would once its missing directories exist. Raises OSError."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    stat = os.statvfs(place)
    return Space(
        path=str(place),
        fs_type=_fs_type(root, str(place)),
        total_bytes=stat.f_blocks * stat.f_frsize,
        free_bytes=stat.f_bavail * stat.f_frsize,
        writable=os.access(place, os.W_OK) and not stat.f_flag & os.ST_RDONLY,
    )


def _fs_type(root: Root, path: str) -> str:
    """Type of the mount with the longest path above `path`; '' if the table is not readable."""
    best, kind = "", ""
    real = os.path.realpath(path)
    try:
        table = root.text("proc/self/mounts")
    except OSError:
        return ""
    for line in table.splitlines():
        _, mount, fs_type, *_ = line.split(" ")
        mount = _ESCAPE.sub(lambda m: chr(int(m[1], 8)), mount)
        if len(mount) >= len(best) and (real == mount or real.startswith(mount.rstrip("/") + "/")):
            best, kind = mount, fs_type
    return kind


def _leftovers(directory: Path) -> tuple[Leftover, ...]:
    """Segments of known names that no process maps or has open. Empty unless every process could be looked at."""
    files = {e.path: e.stat().st_size for e in os.scandir(directory) if e.name.startswith(_OURS) and e.is_file()}
    if not files:
        return ()
    answer = probe.run("find_unused_files", sorted(files)[:_MAX_FILES], limit_s=_LIMIT_S)
    if not isinstance(answer, Ok) or not answer.value.get("complete"):
        return ()
    unused = [path for path in answer.value.get("unused", ()) if path in files]
    return tuple(Leftover(path=path, size_bytes=files[path]) for path in unused)
