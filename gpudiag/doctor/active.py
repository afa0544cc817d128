"""Tests that really use the GPUs. Only when asked for: on a machine with broken peer access they may wedge it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Final

import msgspec

from gpudiag.assets import asset
from gpudiag.doctor import probe
from gpudiag.model.facts import Gpu, GpuSet, PeerCopy
from gpudiag.model.reading import Failed, Ok, Reading

_RUN_S: Final = 20.0
_COMPILER_S: Final = 120.0
_MAX_PAIRS: Final = 56
"""All ordered pairs of eight GPUs."""


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[str, ...]
    outcome: str
    detail: str
    took_s: float


def run(gpus: GpuSet) -> Reading[tuple[PeerCopy, ...]]:
    """Smoke on each GPU, then copies and shared memory between each pair; nothing more after the first hang."""
    found: list[PeerCopy] = []
    alone: Sequence[tuple[Gpu, ...]] = [(g,) for g in gpus.gpus]
    pairs: Sequence[tuple[Gpu, ...]] = list(permutations(gpus.gpus, 2))[:_MAX_PAIRS]
    at = 0.0
    for test in ("smoke", "peer_copy", "peer_ipc"):
        # What the driver denies is no fault, and nobody will try to share memory that way.
        denied = {one.gpus for one in found if one.outcome == "denied"}
        sets = alone if test == "smoke" else [p for p in pairs if tuple(g.index for g in p) not in denied]
        if not sets:
            continue
        answer = _run(test, sets)
        if not isinstance(answer, Ok):
            return answer
        at = answer.at
        found += answer.value
        if any(one.outcome in ("hung", "not-built") for one in answer.value):
            break
    return Ok(value=tuple(found), at=at)


def _run(test: str, sets: Sequence[tuple[Gpu, ...]]) -> Reading[tuple[PeerCopy, ...]]:
    capabilities = {g.capability.value.replace(".", "") for one in sets for g in one if isinstance(g.capability, Ok)}
    if len(capabilities) != 1:
        return Failed(error="the GPUs are of several compute capabilities, or do not tell theirs")
    arguments = ["--limit", str(_RUN_S), "--capability", capabilities.pop(), str(asset("kernels", f"cuda/{test}.cu"))]
    arguments += [",".join(str(g.index) for g in one) for one in sets]
    answer = probe.run("run_cuda_program", arguments, limit_s=_COMPILER_S + _RUN_S * len(sets))
    if not isinstance(answer, Ok):
        return answer
    try:
        runs = msgspec.convert(answer.value.get("runs"), tuple[_Run, ...])
        copies = tuple(
            msgspec.convert({**msgspec.to_builtins(r), "gpus": [int(g) for g in r.gpus], "test": test}, PeerCopy) for r in runs
        )
    except msgspec.ValidationError as error:
        return Failed(error=f"the answer of the test {test} is not as expected: {error}")
    return Ok(value=copies, at=answer.at, took_s=answer.took_s)
