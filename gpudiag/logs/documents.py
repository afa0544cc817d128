"""Text of other tools beside or inside a log: ncclras, nvidia-smi, torch's collect-env."""

from __future__ import annotations

import re
from typing import Final

from gpudiag.model.log import Document, Place, RasRank

MAX_RANKS: Final = 4096

_RAS_HEAD: Final = re.compile(r"^NCCL version (\S{1,40}) compiled with CUDA")
_RAS_COMM: Final = re.compile(r"^#\d+-\d+ \(([0-9a-f]{4,32})\) (\w+)")
_RAS_KIND: Final = re.compile(r"^\s+Communicator ranks have different (\w+) operation counts")
_RAS_COUNT: Final = re.compile(r"^\s+(?:Rank|Ranks) (\d+(?:[,-]\d+)*) (?:has|have) launched up to operation (\d+)")
_RAS_LOST: Final = re.compile(r"^\s+Rank (\d+) -- .*|^\s+Missing rank (\d+)")
_SMI_HEAD: Final = re.compile(r"NVIDIA-SMI (\S+)\s+(?:Driver Version: (\S+))?(?:\s+CUDA Version: (\S+))?")
_ENV_LINE: Final = re.compile(
    r"^(PyTorch version|CUDA used to build PyTorch|Nvidia driver version|"
    r"CUDA runtime version|Python version|OS|GCC version): (.{1,200})$"
)


class DocumentReader:
    """Recognises such texts line by line."""

    def __init__(self) -> None:
        self._kind: str | None = None
        self._place = Place(source=0, number=0)
        self._fields: dict[str, str] = {}
        self._communicator = ""
        self._counter = ""
        self._idle = 0
        self.ras: list[RasRank] = []

    @property
    def listening(self) -> bool:
        return self._kind is not None

    def feed(self, text: str, place: Place) -> list[Document]:
        ras = _RAS_HEAD.match(text)
        if ras:
            return self._begin("ncclras", place, {"nccl": ras.group(1)})
        if "NVIDIA-SMI " in text:
            smi = _SMI_HEAD.search(text)
            fields = {k: v for k, v in zip(("smi", "driver", "cuda"), smi.groups() if smi else (), strict=False) if v}
            return self._begin("nvidia-smi", place, fields)
        if text.startswith("Collecting environment information"):
            return self._begin("collect-env", place, {})
        if self._kind is None:
            return []
        self._idle = 0 if self._body(text) else self._idle + 1
        return self.flush() if self._idle > 60 else []

    def _begin(self, kind: str, place: Place, fields: dict[str, str]) -> list[Document]:
        done = self.flush()
        self._kind, self._place, self._fields, self._idle = kind, place, fields, 0
        self._communicator = self._counter = ""
        return done

    def flush(self) -> list[Document]:
        kind, self._kind = self._kind, None
        if kind == "ncclras":
            return [Document(kind="ncclras", place=self._place, fields=self._fields)]
        if kind == "nvidia-smi":
            return [Document(kind="nvidia-smi", place=self._place, fields=self._fields)]
        if kind == "collect-env":
            return [Document(kind="collect-env", place=self._place, fields=self._fields)]
        return []

    def _body(self, text: str) -> bool:
        if self._kind == "collect-env":
            pair = _ENV_LINE.match(text)
            if pair:
                self._fields[pair.group(1)] = pair.group(2)
            return pair is not None
        if self._kind != "ncclras":
            return False
        comm = _RAS_COMM.match(text)
        if comm:
            self._communicator, self._counter = comm.group(1), ""
            return True
        kind = _RAS_KIND.match(text)
        if kind:
            self._counter = kind.group(1)
            return True
        count = _RAS_COUNT.match(text)
        if count and self._counter:
            for rank in _expand(count.group(1)):
                self._add(rank, "count", {self._counter: int(count.group(2)[:18])})
            return True
        return False

    def _add(self, rank: int, problem: str, counts: dict[str, int]) -> None:
        if len(self.ras) < MAX_RANKS:
            self.ras.append(RasRank(communicator=self._communicator, rank=rank, problem=problem, counts=counts))


def _expand(text: str) -> list[int]:
    """'0-3,7' as numbers; never more than MAX_RANKS of them."""
    out: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = int(low[:6]), int((high or low)[:6])
        out.extend(range(first, min(last, first + MAX_RANKS) + 1))
    return out[:MAX_RANKS]
