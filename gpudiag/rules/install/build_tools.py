"""Versions of build tools, from the lines that they print."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.model.facts import System
from gpudiag.model.reading import Ok
from gpudiag.rules.preflight.words import version

_RELEASE: Final = re.compile(r"release (\d+\.\d+)")
_NUMBER: Final = re.compile(r"(\d+\.\d+(?:\.\d+)?)\s*(?:\)|$|\.git)")

_BYTES_PER_TARGET: Final = 3 << 30
"""What one of nvcc's compilers (cicc, ptxas) may take for one architecture: a judgement, files of attention kernels take more."""
_TARGETS: Final = 6
_MOST_JOBS: Final = 64


def tool_version(system: System, tool: str) -> tuple[int, ...]:
    """(13, 0) for nvcc 13.0, (3, 31, 2) for CMake; () for a tool that is not there."""
    line = system.tools.get(tool, "").partition(": ")[2]
    found = _RELEASE.search(line) or _NUMBER.search(line) or re.search(r"(\d+(?:\.\d+)+)", line)
    return version(found[1]) if found else ()


def jobs(system: System, threads: int = 1) -> int | None:
    """How many files to compile at once so that the memory is enough; `threads` is nvcc's --threads. None if unknown."""
    cpu, memory = system.cpu, system.memory_bytes
    if not isinstance(cpu, Ok) or not isinstance(memory, Ok):
        return None
    group = system.cgroup.value.memory_bytes if isinstance(system.cgroup, Ok) else None
    usable = min(memory.value, group) if group else memory.value
    return max(1, min(cpu.value.cores * 2 // 3, _MOST_JOBS, usable // (_BYTES_PER_TARGET * min(max(1, threads), _TARGETS))))
