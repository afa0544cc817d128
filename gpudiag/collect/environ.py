"""The environment of a process, by allow-list."""

from __future__ import annotations

import re

from gpudiag.collect.procfs import text

_NAMES = frozenset(
    {
        b"RANK",
        b"WORLD_SIZE",
        b"LOCAL_RANK",
        b"LOCAL_WORLD_SIZE",
        b"GROUP_RANK",
        b"GROUP_WORLD_SIZE",
        b"ROLE_RANK",
        b"NODE_RANK",
        b"MASTER_ADDR",
        b"MASTER_PORT",
        b"CUDA_VISIBLE_DEVICES",
        b"CUDA_DEVICE_ORDER",
        b"CUDA_LAUNCH_BLOCKING",
        b"CUDA_DEVICE_MAX_CONNECTIONS",
        b"CUDA_MODULE_LOADING",
        b"CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
        b"CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
        b"CUDA_COREDUMP_PIPE",
        b"CUDA_COREDUMP_FILE",
        b"CUDA_COREDUMP_GENERATION_FLAGS",
        b"NVIDIA_VISIBLE_DEVICES",
        b"OMP_NUM_THREADS",
        b"GPUDIAG_RUN",
        b"PYTHONFAULTHANDLER",
        b"PYTHONUNBUFFERED",
        b"PYTHON_GIL",
        b"LD_PRELOAD",
        b"LD_LIBRARY_PATH",
        b"TRITON_CACHE_DIR",
        b"VIRTUAL_ENV",
        b"CONDA_PREFIX",
        b"MAX_JOBS",
    }
)
_PREFIXES = (b"NCCL_", b"TORCH_", b"TORCHELASTIC_", b"GLOO_", b"VLLM_", b"SGLANG_", b"SGL_", b"FLASHINFER_")
_SECRET_WORDS = (b"TOKEN", b"KEY", b"SECRET", b"PASSW", b"CREDENTIAL", b"AUTH")
_CREDENTIALS_IN_URL = re.compile(rb"://[^/@\s]*@")
_VALUE_LIMIT = 1024


def allowed(name: bytes) -> bool:
    """Whether a variable may leave the target: on the list, and its name says nothing of a secret."""
    upper = name.upper()
    if any(word in upper for word in _SECRET_WORDS):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def parse_environ(raw: bytes) -> dict[str, str]:
    """The allowed variables of /proc/PID/environ; the first of a name wins, as for getenv(3).

    setproctitle overwrites this memory, so entries may be missing or cut. Values are cut at 1 KiB.
    """
    found: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and allowed(name):
            shown = _CREDENTIALS_IN_URL.sub(b"://***@", value[:_VALUE_LIMIT])
            found.setdefault(text(name), text(shown))
    return found
