"""Processes with NCCL's tables in memory, some of them fakes, and readers for them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpudiag.collect.nccl_layout import SHIPPED, Layout

PROGRAMS = Path(__file__).parent / "programs"


class Fake:
    """A running fake: it can be told to launch."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def launch(self, slot: int, kind: int) -> None:
        """Count one collective of a kind (an index of COLLECTIVES) more in a slot of the table."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"launch {slot} {kind}\n".encode())
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"launched\n"


def layout_of(version: str) -> tuple[str, Layout]:
    """Build-id and layout of a shipped version."""
    return next((identity, layout) for identity, layout in SHIPPED.items() if layout.version == version)


def slot(number: int = 1, rank: int = 0, launched: tuple[int, ...] = (0, 0, 0, 0, 0), **more: Any) -> dict[str, Any]:
    return {"hash": hex(number), "rank": rank, "size": 2, "cuda": rank, "nvml": rank, "launched": launched, **more}


@contextlib.contextmanager
def fake(directory: Path, version: str, slots: list[dict[str, Any] | None], **more: Any) -> Iterator[Fake]:
    """A process that looks as if it had that NCCL with these communicators."""
    directory.mkdir(exist_ok=True)
    identity, layout = layout_of(version)
    what = {"build_id": identity, "symbols": layout.symbols, "offsets": layout.offsets, "slots": slots, **more}
    command = [sys.executable, str(PROGRAMS / "fake_nccl.py"), str(directory), json.dumps(what)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == "ready"
            yield Fake(process)
        finally:
            process.kill()


@contextlib.contextmanager
def loading(library: Path, *calls: tuple[int, ...]) -> Iterator[int]:
    """The pid of a process that has loaded a real shared library and called its fake_make with these arguments."""
    program = (
        "import ctypes, sys\n"
        "library = ctypes.CDLL(sys.argv[1])\n"
        "for call in eval(sys.argv[2]):\n"
        "    library.fake_make(ctypes.c_uint64(call[0]), call[1], call[2], ctypes.c_uint64(call[3]))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(library), repr(calls)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()
