"""Layouts of libraries that are not in the shipped table: worked out once, kept under XDG_CACHE_HOME by build-id."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

import msgspec

from gpudiag import config
from gpudiag.collect.commands import run_all
from gpudiag.collect.dwarf_layout import Described
from gpudiag.collect.nccl_layout import FIELDS, SYMBOLS, Layout
from gpudiag.collect.nccl_request import UnknownLibrary
from gpudiag.files import remember
from gpudiag.model.decoding import decode_json

DEADLINE_S: Final = 10.0
_MOST_CACHED_BYTES: Final = 64 << 10
_BUILD_ID: Final = re.compile(r"[0-9a-f]{8,128}")
_MOST_OFFSET: Final = 1 << 30


class Layouts:
    """Layouts by build-id. `refused` says why there is none for a library; nobody tries again within one object's life."""

    def __init__(self, directory: Path | None = None, *, deadline_s: float = DEADLINE_S) -> None:
        self.known: dict[str, Layout] = {}
        self.refused: dict[str, str] = {}
        self._directory = directory or config.directory("cache", os.environ, Path.home()) / "nccl"
        self._deadline_s = deadline_s

    def learn(self, pid: int, library: UnknownLibrary) -> None:
        """Have a layout for `library`, which `pid` has mapped, or a reason in `refused`."""
        identity = library.build_id
        if identity in self.known or identity in self.refused:
            return
        if not _BUILD_ID.fullmatch(identity):
            self.refused[identity] = "the library has no build-id"
            return
        layout = self._cached(identity) or self._described(pid, library)
        if layout is not None:
            self.known[identity] = layout

    def _described(self, pid: int, library: UnknownLibrary) -> Layout | None:
        command = [sys.executable, "-P", "-m", "gpudiag.collect.dwarf_layout", str(os.getpid()), str(pid), library.path]
        done = run_all({pid: command}, deadline_s=self._deadline_s).finished[pid]
        if done.late:
            self.refused[library.build_id] = f"its debug information could not be read in {self._deadline_s:g} s"
            return None
        if done.status != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            self.refused[library.build_id] = said[-1][:200] if said else f"the reader ended with status {done.status}"
            return None
        described = decode_json(done.stdout, Described)
        if described.build_id != library.build_id:
            self.refused[library.build_id] = "the file was replaced after it was loaded: its build-id is another one"
            return None
        if not _plausible(described.layout):
            self.refused[library.build_id] = "its debug information makes no sense"
            return None
        remember(self._directory / f"{library.build_id}.json", msgspec.json.encode(described.layout))
        return described.layout

    def _cached(self, identity: str) -> Layout | None:
        try:
            with (self._directory / f"{identity}.json").open("rb") as file:
                layout = decode_json(file.read(_MOST_CACHED_BYTES), Layout)
        except (OSError, msgspec.MsgspecError):
            return None
        return layout if _plausible(layout) else None


def _plausible(layout: Layout) -> bool:
    """Whether every needed place is there and lies inside a library or a structure of possible size."""
    places = [layout.offsets.get(name, -1) for name in FIELDS]
    addresses = [layout.symbols.get(name, -1) for name in SYMBOLS]
    return all(0 <= p < _MOST_OFFSET for p in places) and all(0 < a < 1 << 40 for a in addresses) and not layout.shipped
