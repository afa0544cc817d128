"""What an entry of the corpus is, and when an answer to it is right."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Ground = Literal["processes", "gloo", "vllm", "sglang", "h200", "report", "machine", "launch", "drafter", "screen"]
"""Where it happened: plain processes, torch over gloo, a real engine, two H200s, a public report that was rebuilt in the form
in which the engine prints it, the facts of a machine, an install or a checkpoint, a server of small processes under the
supervisor of `gpudiag launch`, a drafter and its target, or the terminal interface."""

REAL: frozenset[Ground] = frozenset({"vllm", "sglang", "h200"})
"""Real engines and real GPUs."""

Report = dict[str, Any]
"""A report as gpudiag printed it with --json."""


class Culprit(NamedTuple):
    """Who is to blame, as far as what was planted says. What is None is not compared.

    `ranks`: exactly these are named, in any order: where two differ from each other, neither is odd by itself.
    `among`: it is enough to be named at all, for faults of two parties; else the first one named counts.
    `file` and `path` are ends of paths; `says` must occur in the title, where the culprit is no process and no file.
    """

    rank: int | None = None
    pid: int | None = None
    file: str | None = None
    line: int | None = None
    path: str | None = None
    says: str | None = None
    ranks: frozenset[int] | None = None
    among: bool = False

    def fits(self, report: Report) -> bool:
        verdict = report["verdict"]
        culprits = verdict["culprits"]
        if self.says is not None and self.says not in verdict["title"]:
            return False
        if self.ranks is not None and {c["rank"] for c in culprits} != self.ranks:
            return False
        if not any((self.rank is not None, self.pid, self.file, self.line, self.path)):
            return True
        return any(self._is(c) for c in (culprits if self.among else culprits[:1]))

    def _is(self, culprit: dict[str, Any]) -> bool:
        same = all(want in (None, culprit[key]) for key, want in (("rank", self.rank), ("pid", self.pid), ("line", self.line)))
        ends = ((self.file, culprit["file"]), (self.path, culprit["path"]))
        return same and all(want is None or (have or "").endswith(want) for want, have in ends)


Ask = Callable[[tuple[str, ...]], Report]


class Staged(NamedTuple):
    """A fault that is there to be looked at: what a person types after `gpudiag`, and who is to blame this time.

    `ask` gets the report where the command has no --json; None: it is printed.
    """

    arguments: tuple[str, ...]
    culprit: Culprit
    ask: Ask | None = None


class Variation(NamedTuple):
    """What differs from run to run: `number` counts from 0, `rng` draws sizes, victims, names; `directory` is empty."""

    number: int
    rng: random.Random
    directory: Path


Stage = Callable[[Variation], AbstractContextManager[Staged]]


@dataclass(frozen=True)
class Fault:
    """One entry. `code` None: nothing is wrong, or slow at most, and nothing of severity 'error' may be said.

    `planted` says what was done, and is all that `code` and the culprit rest on. `live`: processes are started for it.
    """

    name: str
    planted: str
    code: str | None
    ground: Ground
    stage: Stage
    live: bool = False
    needs: Literal["torch", "fuse"] | None = None


class Answer(NamedTuple):
    """What gpudiag said to one staging of one entry, and how long it took from the command to the report."""

    fault: Fault
    staged: Staged
    report: Report
    took_s: float

    @property
    def code_is_right(self) -> bool:
        return bool(self.report["verdict"]["code"] == self.fault.code)

    @property
    def culprit_is_right(self) -> bool:
        return self.code_is_right and self.staged.culprit.fits(self.report)

    @property
    def abstained(self) -> bool:
        return bool(self.report["verdict"]["status"] == "insufficient")

    @property
    def is_false_alarm(self) -> bool:
        """An error said of something that is not wrong: in the verdict or in any finding."""
        said = [self.report["verdict"], *self.report["findings"]]
        return self.fault.code is None and any(s["severity"] == "error" for s in said)

    @property
    def is_right(self) -> bool:
        return self.culprit_is_right if self.fault.code else not self.is_false_alarm


def unique(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The entries in order. Raises ValueError if two have one name."""
    found: dict[str, Fault] = {}
    for fault in faults:
        if fault.name in found:
            raise ValueError(f"two entries are called {fault.name}")
        found[fault.name] = fault
    return tuple(found.values())
