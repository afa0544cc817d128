"""Caches of compiled kernels, the locks in them, and what engines remember about peer access."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpudiag.doctor.reads import Root, bounded, open_files
from gpudiag.doctor.shm import space
from gpudiag.model.facts import Cache, JitLock, P2pCache, Space

_MAX_LOCKS: Final = 200
_JSON_BYTES: Final = 1 << 22
_BUILDERS: Final = frozenset({"ninja", "nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "fatbinary", "nvlink"})
_P2P_CACHE: Final = "gpu_p2p_access_cache_for_*.json"


class Places:
    """Where caches lie: variables first, then the defaults of torch, Triton, FlashInfer, CUDA, vLLM and SGLang."""

    def __init__(self, variables: Mapping[str, str], home: Path) -> None:
        cache = Path(variables.get("XDG_CACHE_HOME") or home / ".cache")

        def place(variable: str, default: Path) -> Path:
            return Path(variables[variable]) if variables.get(variable) else default

        self.vllm = place("VLLM_CACHE_ROOT", cache / "vllm")
        self.sglang = place("SGLANG_CACHE_DIR", cache / "sglang")
        self.torch_extensions = place("TORCH_EXTENSIONS_DIR", cache / "torch_extensions")
        self.huggingface = place("HF_HUB_CACHE", place("HF_HOME", cache / "huggingface"))
        self.temporary = place("TMPDIR", Path("/tmp"))  # noqa: S108  where torch and NCCL really write
        self.compiled: dict[str, Path] = {
            "torch extensions": self.torch_extensions,
            "Triton": place("TRITON_CACHE_DIR", home / ".triton" / "cache"),
            "FlashInfer": place("FLASHINFER_WORKSPACE_BASE", home) / ".cache" / "flashinfer",
            "CUDA's JIT": place("CUDA_CACHE_PATH", home / ".nv" / "ComputeCache"),
            "vLLM": self.vllm,
            "SGLang": self.sglang,
        }


def caches(root: Root, places: Places) -> tuple[Cache, ...]:
    return tuple(
        Cache(purpose=purpose, path=str(path), exists=path.is_dir(), space=space(root, str(path)))
        for purpose, path in places.compiled.items()
    )


def spaces(root: Root, places: Places, model: str | None) -> tuple[Space, ...]:
    """The file systems that a server writes to, each once."""
    found: dict[int, Space] = {}
    for path in (places.huggingface, places.temporary, places.vllm, places.sglang, *((Path(model),) if model else ())):
        one = space(root, str(path))
        found.setdefault(os.stat(one.path).st_dev, one)
    return tuple(found.values())


def jit_locks(root: Root, places: Places) -> tuple[JitLock, ...]:
    """Locks in the caches of torch extensions and FlashInfer, none of which is touched."""
    paths = [*_named(places.torch_extensions, "lock", depth=3), *_named(places.compiled["FlashInfer"], "*.lock", depth=5)]
    if not paths:
        return ()
    running = builders(root)
    opened = _opened(root, {str(p) for p in paths})
    locked = _locked(root)
    now = time.time()
    found = []
    for path in paths[:_MAX_LOCKS]:
        try:
            stat = path.stat()
        except OSError:
            # Removed between the listing and the look: the build has just ended.
            continue
        age_s = max(0.0, now - stat.st_mtime)
        held = str(path) in opened or (stat.st_dev, stat.st_ino) in locked
        # torch's FileBaton takes the file's existence for the lock; FlashInfer's filelock locks the open file.
        found.append(
            JitLock(path=str(path), age_s=round(age_s, 1), held=held, by_existence=path.name == "lock", builders=running)
        )
    return tuple(found)


def _named(directory: Path, pattern: str, *, depth: int) -> list[Path]:
    """Files of this name at most `depth` directories down."""
    return sorted(p for level in range(depth + 1) for p in directory.glob("*/" * level + pattern) if p.is_file())


def builders(root: Root) -> tuple[int, ...]:
    """Pids of compilers and of ninja that run now, by the name of their program."""
    found = []
    for pid in (p for p in os.listdir(root.at("proc")) if p.isdigit()):
        try:
            if root.text(f"proc/{pid}/comm", 256) in _BUILDERS:
                found.append(int(pid))
        except OSError:
            continue
    return tuple(sorted(found))


def _opened(root: Root, paths: set[str]) -> set[str]:
    found: set[str] = set()
    for pid in (p for p in os.listdir(root.at("proc")) if p.isdigit()):
        # Gone meanwhile, or of another user.
        with contextlib.suppress(OSError):
            found |= open_files(root, pid) & paths
    return found


def _locked(root: Root) -> set[tuple[int, int]]:
    """Device and inode of every file that somebody has locked: /proc/locks, 'MAJOR:MINOR:INODE' with hexadecimal numbers."""
    found = set()
    for field in (f for line in root.text("proc/locks", 16 << 20).splitlines() for f in line.split() if f.count(":") == 2):
        major, minor, inode = field.split(":")
        if inode.isdigit():
            found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return found


def p2p_caches(places: Places) -> tuple[P2pCache, ...]:
    paths = (path for directory in (places.vllm, places.sglang) for path in sorted(directory.glob(_P2P_CACHE)))
    return tuple(P2pCache(path=str(path), modified_at=path.stat().st_mtime, pairs=_pairs(path)) for path in paths)


def _pairs(path: Path) -> dict[str, bool] | None:
    try:
        read = json.loads(bounded(path, _JSON_BYTES))
    except (ValueError, RecursionError):
        return None
    return {str(k): v for k, v in read.items() if isinstance(v, bool)} if isinstance(read, dict) else None
